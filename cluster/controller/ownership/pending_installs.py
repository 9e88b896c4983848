"""What a command was to wait for before its client was answered, so that its repetition waits for it too.

A repetition changes nothing any more, so it cannot tell from what it did where somebody who had to leave may still be
let in. Pure state of the controller's machine.
"""

from collections.abc import Callable, Iterable

from .refs import FenceRef, ReaderRef

REFS_MAX = 100_000
"""Things to wait for that are remembered, of all sessions together; past it those of the oldest session go."""

SavedPromises = list[tuple[str, list[FenceRef], list[ReaderRef]]]
"""By session, the one that came first first."""


class Promises:
    """By session. What has come true is forgotten as others come."""

    def __init__(self, is_over: Callable[[FenceRef], bool], is_installed: Callable[[ReaderRef], bool]) -> None:
        """The two say of each whether it has come true, for good or for now: from the replicated state alone."""
        self._is_over = is_over
        self._is_installed = is_installed
        self._refs: dict[str, tuple[list[FenceRef], list[ReaderRef]]] = {}
        self._count = 0

    def make(self, session: str, fences: Iterable[FenceRef], readers: Iterable[ReaderRef]) -> None:
        """Something that a command of this session has to wait for."""
        before, seen = self._forget(session)
        made = list(dict.fromkeys([*before, *fences])), list(dict.fromkeys([*seen, *readers]))
        self._keep(session, made)
        while self._refs:
            oldest = next(iter(self._refs))
            if any(self.open(oldest)) and self._count <= REFS_MAX:
                break
            self._forget(oldest)

    def open(self, session: str) -> tuple[list[FenceRef], list[ReaderRef]]:
        """What has not come true of it."""
        fences, readers = self._refs.get(session, ([], []))
        return (
            [ref for ref in fences if not self._is_over(ref)],
            [ref for ref in readers if not self._is_installed(ref)],
        )

    def forget(self, session: str) -> None:
        """Nobody repeats a command of this session."""
        self._forget(session)

    def save(self) -> SavedPromises:
        """Everything that decides future answers."""
        return [(session, *refs) for session, refs in self._refs.items()]

    def load(self, saved: SavedPromises) -> None:
        """Inverse of save, into an empty one."""
        for session, fences, readers in saved:
            self._keep(session, (fences, readers))

    def _keep(self, session: str, refs: tuple[list[FenceRef], list[ReaderRef]]) -> None:
        if any(refs):
            self._refs[session] = refs
            self._count += len(refs[0]) + len(refs[1])

    def _forget(self, session: str) -> tuple[list[FenceRef], list[ReaderRef]]:
        still = self.open(session)
        fences, readers = self._refs.pop(session, ([], []))
        self._count -= len(fences) + len(readers)
        return still
