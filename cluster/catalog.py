"""Topics, where their replicas are, and the ids of their Raft groups. Pure state of the controller's machine."""

from .commands import GroupId

CONTROLLER_GROUP: GroupId = 0
"""The Raft group of the controller."""
_PARTITION_BITS = 16


def group_id(topic_id: int, partition: int) -> GroupId:
    """The Raft group of a partition. Never 0: the first index of a log is 1, so every topic id is at least that."""
    assert topic_id > 0
    assert 0 <= partition < 1 << _PARTITION_BITS
    return topic_id << _PARTITION_BITS | partition


def topic_partition(group: GroupId) -> tuple[int, int]:
    """Inverse of group_id: (topic id, partition)."""
    return group >> _PARTITION_BITS, group & ((1 << _PARTITION_BITS) - 1)
