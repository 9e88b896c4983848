"""Pending installs: the installs that the answer to a command has to wait for, remembered so that its retry waits for
them, too. A retry ends no grant and fences no reader, so its own outcome does not name the partitions that may still
accept the evicted session. Pure state of the controller's machine.
"""

from collections.abc import Callable, Iterable

from ..commands import FenceRef, ReaderRef

REFS_MAX = 100_000
"""Pending installs of all sessions together; beyond it those of the oldest session are forgotten."""

SavedPendingInstalls = list[tuple[str, list[FenceRef], list[ReaderRef]]]
"""The saved state of PendingInstalls: by session, the oldest first."""


class PendingInstalls:
    """Pending installs by session. Those that were committed meanwhile are forgotten when others are added."""

    def __init__(self, is_over: Callable[[FenceRef], bool], is_installed: Callable[[ReaderRef], bool]) -> None:
        """``is_over`` and ``is_installed`` say whether a partition has committed a ref, from the replicated state
        alone.
        """
        self._is_over = is_over
        self._is_installed = is_installed
        self._refs: dict[str, tuple[list[FenceRef], list[ReaderRef]]] = {}
        self._count = 0

    def add(self, session: str, fences: Iterable[FenceRef], readers: Iterable[ReaderRef]) -> None:
        """Note that the answers to this session's commands have to wait for these installs. Forgets sessions without
        pending installs, and the oldest sessions while there are more than REFS_MAX refs.
        """
        fences, readers = list(fences), list(readers)
        if fences or readers:
            before, seen = self.outstanding(session)
            self.forget(session)
            self._store(session, (list(dict.fromkeys([*before, *fences])), list(dict.fromkeys([*seen, *readers]))))
        while self._refs:
            oldest = next(iter(self._refs))
            if self._waits(oldest) and self._count <= REFS_MAX:
                break
            self.forget(oldest)

    def outstanding(self, session: str) -> tuple[list[FenceRef], list[ReaderRef]]:
        """The noted installs of a session that their partitions have not committed."""
        fences, readers = self._refs.get(session, ([], []))
        return (
            [ref for ref in fences if not self._is_over(ref)],
            [ref for ref in readers if not self._is_installed(ref)],
        )

    def sessions(self) -> list[str]:
        """The sessions with noted installs, the oldest first; all installs of one may have been committed meanwhile."""
        return list(self._refs)

    def forget(self, session: str) -> None:
        """Drop the installs of a session, as when it has ended: none of its commands is retried then."""
        fences, readers = self._refs.pop(session, ((), ()))
        self._count -= len(fences) + len(readers)

    def save(self) -> SavedPendingInstalls:
        """The state on which future answers depend."""
        return [(session, *refs) for session, refs in self._refs.items()]

    def load(self, saved: SavedPendingInstalls) -> None:
        """Inverse of ``save``, on an empty instance."""
        for session, fences, readers in saved:
            self._store(session, (fences, readers))

    def _store(self, session: str, refs: tuple[list[FenceRef], list[ReaderRef]]) -> None:
        if any(refs):
            self._refs[session] = refs
            self._count += len(refs[0]) + len(refs[1])

    def _waits(self, session: str) -> bool:
        """Whether any install that this session waits for is not committed."""
        fences, readers = self._refs[session]
        return not all(map(self._is_over, fences)) or not all(map(self._is_installed, readers))
