"""The part of a topic's configuration that a partition's verdicts depend on."""

import msgspec

PRODUCER_TTL_MS = 86_400_000


class PartitionConfig(msgspec.Struct, frozen=True):
    """The partition's configuration, equal on every replica: only a command changes it. Meanings and ranges are those
    of the fields of `api.topics.TopicConfig`.

    ``require_fence``: refuse writes without a token. ``strict_sequence``: refuse a repetition of a batch that is no
    longer remembered. ``max_producers``: most producers remembered, at least 1. ``producer_ttl_ms``: idle time after
    which a producer is forgotten. ``dedupe_window_ms``: how long a message id is remembered; 0: message ids are
    refused. ``writer_group``: appends need the fence_epoch of the partition's owner in this group. ``sealed``: nothing
    is appended any more; never undone.
    """

    topic_id: int
    require_fence: bool = False
    strict_sequence: bool = False
    max_producers: int = 100_000
    producer_ttl_ms: int = PRODUCER_TTL_MS
    dedupe_window_ms: int = 0
    writer_group: str | None = None
    sealed: bool = False
