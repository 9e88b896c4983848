"""The groups that this node leads: counts the leaderships won and lost, and logs them and changes of the members."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from ...raft.core.group import Group
from ...raft.log.configuration import Configuration
from ..condition import Condition, aligned_s

PERIOD_S = 1.0
"""Between two looks at the members of the groups that this node leads."""
FIRST_TERM = 1
"""The term of the first leader of a group, unless its first election has none."""

_log = logging.getLogger(__name__)


class Leaderships:
    """The groups that this node leads, each with its last seen configuration. ``changed`` is notified when a group of
    this node has another leader, or none; ``name_of`` names a group.
    """

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self.changed: Condition = Condition()
        self.won: int = 0
        self.taken: int = 0
        """Those won after another leadership of the group: all but the first, with which a partition begins."""
        self.lost: int = 0
        self._name_of = name_of
        self._led: dict[int, Configuration] = {}

    def look(self, group: Group) -> None:
        """Take note of a group of which the leader, the term or the role of this node has changed."""
        group_id, term = group.group_id, group.term
        if group.is_leader and group_id not in self._led:
            self._led[group_id] = group.configuration
            self.won += 1
            self.taken += term > FIRST_TERM
            name = self._name_of(group_id)
            event = {"event": "leadership_won", "group": name, "term": term}
            _log.info("this node leads %s in term %d", name, term, extra={"event": event})
        elif not group.is_leader and group_id in self._led:
            self.forget(group_id)
            self.lost += 1
            name, leader = self._name_of(group_id), group.leader
            event = {"event": "leadership_lost", "group": name, "term": term, "leader": leader}
            text = "this node no longer leads %s: in term %d %s does"
            _log.info(text, name, term, leader or "no node that is known", extra={"event": event})
        self.changed.notify()

    def forget(self, group_id: int) -> None:
        """Forget a group that this node does not lead any more, or of which it has no replica any more."""
        self._led.pop(group_id, None)

    async def watch(self, groups: Mapping[int, Group]) -> None:
        """Log when the members of a group that this node leads have changed. Runs until cancelled."""
        while True:
            await asyncio.sleep(aligned_s(PERIOD_S))
            self.look_at_members(groups)

    def look_at_members(self, groups: Mapping[int, Group]) -> None:
        """Log the members of each led group whose configuration has changed since the last look."""
        for group_id, known in self._led.items():
            group = groups.get(group_id)
            if group is None or group.configuration == known:
                continue
            found = self._led[group_id] = group.configuration
            name, voters = self._name_of(group_id), sorted(found.voters)
            learners = sorted(set(found.members) - set(voters))
            event = {"event": "members_changed", "group": name, "voters": voters, "learners": learners}
            filled = f"; {', '.join(learners)} being filled" if learners else ""
            _log.info("members of %s: %s%s", name, ", ".join(voters), filled, extra={"event": event})
