"""Pending installs: the installs that the answer to a command has to wait for, remembered so that its retry waits for
them, too. A retry ends no grant and fences no reader, so its own outcome does not name the partitions that may still
accept the evicted session. Pure state of the controller's machine.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import chain

from ..commands import FenceRef, ReaderRef

REFS_MAX = 100_000
"""Pending installs of all sessions together; beyond it those of the oldest session are forgotten."""

SavedPendingInstalls = list[tuple[str, list[FenceRef], list[ReaderRef]]]
"""The saved state of PendingInstalls: by session, the oldest first."""

_Ref = FenceRef | ReaderRef
_Noted = tuple[list[_Ref], dict[_Ref, None]]
"""What a session waited for before it was noted last, and what was noted then: all sessions of one ``add`` share it."""


class PendingInstalls:
    """Pending installs by session. Those that were committed meanwhile are forgotten when others are added."""

    def __init__(self, is_over: Callable[[FenceRef], bool], is_installed: Callable[[ReaderRef], bool]) -> None:
        """``is_over`` and ``is_installed`` say whether a partition has committed a ref, from the replicated state
        alone.
        """
        self._is_over = is_over
        self._is_installed = is_installed
        self._noted: OrderedDict[str, _Noted] = OrderedDict()
        self._count = 0
        # What the session that was looked at last waits for, and the ref of it that was due then. It mostly still is,
        # so that the committed refs before it need not be looked at again.
        self._seen_due: tuple[_Noted, _Ref] | None = None

    def add(self, sessions: Iterable[str], fences: Iterable[FenceRef], readers: Iterable[ReaderRef]) -> None:
        """Note that the answers to the commands of each of these sessions have to wait for these installs. Forgets
        sessions without pending installs, and the oldest sessions while there are more than REFS_MAX refs.
        """
        added: dict[_Ref, None] = dict.fromkeys([*fences, *readers])
        for session in sessions:
            if added:
                before = list(filter(self._is_due, self._refs(session)))
                self.forget(session)
                self._note(session, (before, added))
            while self._noted:
                oldest = next(iter(self._noted))
                if self._count <= REFS_MAX and self._waits(oldest):
                    break
                self.forget(oldest)

    def outstanding(self, session: str) -> tuple[list[FenceRef], list[ReaderRef]]:
        """The noted installs of a session that their partitions have not committed."""
        return _by_kind(filter(self._is_due, self._refs(session)))

    def sessions(self) -> list[str]:
        """The sessions with noted installs, the oldest first; all installs of one may have been committed meanwhile."""
        return list(self._noted)

    def forget(self, session: str) -> None:
        """Drop the installs of a session, as when it has ended: none of its commands is retried then."""
        if (noted := self._noted.pop(session, None)) is not None:
            self._count -= _size(noted)

    def save(self) -> SavedPendingInstalls:
        """The state on which future answers depend."""
        return [(session, *_by_kind(self._refs(session))) for session in self._noted]

    def load(self, saved: SavedPendingInstalls) -> None:
        """Inverse of ``save``, on an empty instance."""
        for session, fences, readers in saved:
            self._note(session, ([], dict.fromkeys([*fences, *readers])))

    def _refs(self, session: str) -> Iterable[_Ref]:
        """The noted installs of a session, each once, the first noted first."""
        before, added = self._noted.get(session, ([], {}))
        return dict.fromkeys(chain(before, added)) if before else added

    def _note(self, session: str, noted: _Noted) -> None:
        self._noted[session] = noted
        self._count += _size(noted)

    def _is_due(self, ref: _Ref) -> bool:
        return not (self._is_over(ref) if isinstance(ref, FenceRef) else self._is_installed(ref))

    def _waits(self, session: str) -> bool:
        """Whether any install that this session waits for is not committed."""
        noted = self._noted[session]
        if self._seen_due is None or self._seen_due[0] is not noted or not self._is_due(self._seen_due[1]):
            found = next(filter(self._is_due, chain(*noted)), None)
            self._seen_due = None if found is None else (noted, found)
        return self._seen_due is not None


def _size(noted: _Noted) -> int:
    before, added = noted
    return len(added) + sum(ref not in added for ref in before)


def _by_kind(refs: Iterable[_Ref]) -> tuple[list[FenceRef], list[ReaderRef]]:
    fences: list[FenceRef] = []
    readers: list[ReaderRef] = []
    for ref in refs:
        if isinstance(ref, FenceRef):
            fences.append(ref)
        else:
            readers.append(ref)
    return fences, readers
