"""Live grants, by id, by partition and by session. Pure state of the controller's machine.

An exclusive grant holds its partitions alone; a Shared one has a seat on each of them, beside others. Who may have
what is decided in ownership.py.
"""

from collections.abc import Collection, Iterable
from typing import TypeVar

import msgspec

from .catalog import group_id
from .commands import GroupId

_Key = TypeVar("_Key", int, str)


class Grant(msgspec.Struct):
    """A grant, which lives and dies as one.

    ``grant_index`` is its place in the order of all decisions about slots. ``epoch`` is None for Shared, whose epochs
    are those of the partitions. ``resume_epoch`` is what its acquire asked for. ``operation`` says how it came to be
    (acquire, resume, promotion, eviction), at ``at_ms`` of the lease clock. ``pending`` has the partitions that are
    not known to have it yet.
    """

    grant_id: str
    ticket_id: str
    grant_index: int
    session: str
    client_id: str
    topic: str
    topic_id: int
    partitions: list[int]
    all_partitions: bool
    mode: str
    producer_name: str
    epoch: int | None
    resume_epoch: int | None
    operation: str
    at_ms: int
    pending: set[int]

    @property
    def is_shared(self) -> bool:
        """A seat beside others."""
        return self.mode == "Shared"

    def groups(self) -> list[GroupId]:
        """The Raft groups of the set, ascending."""
        return [group_id(self.topic_id, partition) for partition in self.partitions]


class Grants:
    """Indexes over the live grants. ``holders`` has the exclusive grants, ``seats`` the shared ones, by partition."""

    def __init__(self) -> None:
        self.by_id: dict[str, Grant] = {}
        self.holders: dict[GroupId, Grant] = {}
        self.seats: dict[GroupId, dict[str, Grant]] = {}
        self._by_session: dict[str, dict[str, Grant]] = {}
        self._whole: dict[int, dict[str, Grant]] = {}

    def add(self, grant: Grant) -> None:
        """A new grant."""
        self.by_id[grant.grant_id] = grant
        self._by_session.setdefault(grant.session, {})[grant.grant_id] = grant
        if grant.all_partitions:
            self._whole.setdefault(grant.topic_id, {})[grant.grant_id] = grant
        for group in grant.groups():
            self._take(grant, group)

    def remove(self, grant: Grant) -> None:
        """The grant has ended."""
        del self.by_id[grant.grant_id]
        _drop(self._by_session, grant.session, grant.grant_id)
        if grant.all_partitions:
            _drop(self._whole, grant.topic_id, grant.grant_id)
        for group in grant.groups():
            if grant.is_shared:
                _drop(self.seats, group, grant.grant_id)
            else:
                del self.holders[group]

    def grow(self, grant: Grant, partitions: Iterable[int]) -> None:
        """The topic has more partitions, and the grant was asked for all of them."""
        for partition in partitions:
            grant.partitions.append(partition)
            self._take(grant, group_id(grant.topic_id, partition))

    def of_session(self, session: str) -> list[Grant]:
        """The oldest first."""
        return list(self._by_session.get(session, {}).values())

    def of_whole_topic(self, topic_id: int) -> list[Grant]:
        """Those that were asked for all partitions."""
        return list(self._whole.get(topic_id, {}).values())

    def on(self, group: GroupId) -> list[Grant]:
        """The holder of a partition, or everybody with a seat there."""
        holder = self.holders.get(group)
        return [holder] if holder is not None else list(self.seats.get(group, {}).values())

    def on_any(self, groups: Collection[GroupId]) -> list[Grant]:
        """Each grant once, in the order of its first partition here."""
        found = {grant.grant_id: grant for group in groups for grant in self.on(group)}
        return list(found.values())

    def _take(self, grant: Grant, group: GroupId) -> None:
        if grant.is_shared:
            self.seats.setdefault(group, {})[grant.grant_id] = grant
        else:
            self.holders[group] = grant


def _drop(index: dict[_Key, dict[str, Grant]], key: _Key, grant_id: str) -> None:
    del index[key][grant_id]
    if not index[key]:
        del index[key]
