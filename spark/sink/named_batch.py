"""A batch under a sink's name, before and after it is written: are its own rows in the topic, or those of another run?

Spark commits in a process of its own, and does not tell the program the outcome, so the program reads the sink's
history. Without Spark.
"""

import uuid

from ...partition.errors import UnknownTopicOrPartition
from .committer import NAMED_BATCH, SinkCommitter, control_topic
from .history import History, history
from .store import SinkRefused, Store


class BatchRefused(SinkRefused):
    """The rows in the topic may be others than those of this batch, or are gone."""


class NamedBatch:
    """The batch with the name ``sink``. Reads the sink's history when it is created, before the write."""

    def __init__(self, store: Store, sink: str) -> None:
        self._store, self._sink = store, sink
        self._before = self._look()

    def was_decided(self) -> bool:
        """Whether an earlier run has decided on the batch. If that run did not finish, its decision is carried out.

        Raises BatchRefused if a topic of the decision was deleted: its rows are gone, and a second write under this
        name would not bring them back.
        """
        decided = self._before.manifest
        if decided is None or decided.query != NAMED_BATCH:
            return False
        for topic, topic_id in sorted({(piece.topic, piece.topic_id) for piece in decided.pieces}):
            if topic_id is not None and self._topic_id(topic) != topic_id:  # None: decided by an older release
                raise BatchRefused(
                    f"{self._sink} was written to a topic {topic} that has been deleted since; give it another name to"
                    " write it again"
                )
        if not self._before.done:
            SinkCommitter(self._store, self._sink, NAMED_BATCH, uuid.uuid4().hex).commit(0, ())
        return True

    def check_alone(self) -> None:
        """Check after a write that no other run wrote at the same time. Raises BatchRefused then: the rows in the topic
        may be those of the other run.
        """
        after = self._look()
        runs = {after.run, *after.retired} - {self._before.run, *self._before.retired}
        if runs != {after.decided_by}:
            raise BatchRefused(
                f"{self._sink} was written by several runs at once, and the rows of one are in the topic"
            )

    def _look(self) -> History:
        try:
            return history(*self._store.read(control_topic(self._sink), 0))
        except UnknownTopicOrPartition:
            return History()

    def _topic_id(self, topic: str) -> int | None:
        try:
            return self._store.shape(topic).topic_id
        except UnknownTopicOrPartition:
            return None
