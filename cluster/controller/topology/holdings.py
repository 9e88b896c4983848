"""Which partitions each node holds, kept up to date as placements change: a decision about one node, or about one
partition, looks at no other. Follows from the catalog, so no checkpoint has it.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence, Set

from ..commands import GroupId
from .placement import Load


class Holdings:
    """By node: the groups of which it has, or is to have, a replica; and how many it has the first replica of."""

    def __init__(self) -> None:
        self._groups: defaultdict[str, set[GroupId]] = defaultdict(set)
        self._firsts: Counter[str] = Counter()

    def replace(self, group: GroupId, before: Sequence[str], after: Sequence[str]) -> None:
        """A group's replicas were on ``before``, and are on ``after`` now, the first replica first."""
        for node_id in before:
            self._groups[node_id].discard(group)
            if not self._groups[node_id]:
                del self._groups[node_id]
        for node_id in after:
            self._groups[node_id].add(group)
        self._firsts.subtract(before[:1])
        self._firsts.update(after[:1])

    def groups(self, node_id: str) -> Set[GroupId]:
        """Of one node, in no order that counts. Do not change them."""
        return self._groups.get(node_id, frozenset())

    def loads(self) -> dict[str, Load]:
        """Of the nodes that hold something."""
        return {node_id: Load(len(groups), self._firsts[node_id]) for node_id, groups in self._groups.items()}
