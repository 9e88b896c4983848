"""Commands that change a topic, or throw its writers out. Part of the controller's commands (commands.Command)."""

from typing import Any

import msgspec

from .timed import Timed


class ChangeTopic(Timed, frozen=True, tag="change_topic"):
    """Every field says what shall be (None: as it is); ``config`` has the fields of TopicConfig that change.

    New partitions are placed on ``nodes``; grants and tickets of the whole topic grow by them (SEMANTICS 7.4).
    Answers TopicChanged, or UnknownTopicOrPartition, InconsistentTopicId, InvalidRequest, NotEnoughReplicas,
    ThrottlingQuotaExceeded.
    """

    name: str
    topic_id: int | None
    partitions: int | None
    seal: bool
    config: dict[str, Any]
    nodes: list[tuple[str, str | None]]


class FenceTopic(Timed, frozen=True, tag="fence_topic"):
    """Throw out whole grants and seats on these partitions (None: all), and seat nobody; who waits is promoted.

    Answers TopicFenced, or UnknownTopicOrPartition, InconsistentTopicId, InvalidRequest.
    """

    topic: str
    partitions: list[int] | None
    topic_id: int | None = None
    reason: str | None = None


TopicCommand = ChangeTopic | FenceTopic


class TopicChanged(msgspec.Struct, frozen=True, tag="topic_changed"):
    """The topic is as asked. Its partitions act by it when each of them has come to ``config_order``."""

    topic_id: int
    config_order: int


class FencedPartition(msgspec.Struct, frozen=True):
    """``epoch`` right after the fence; ``order`` is its place in the order of decisions."""

    partition: int
    epoch: int
    order: int
    grants: list[str]


class TopicFenced(msgspec.Struct, frozen=True, tag="topic_fenced"):
    """One item a partition, ascending; answer the client when each is known to have come to its place."""

    topic_id: int
    partitions: list[FencedPartition]
