"""What a node answers to requests with the id of a topic that was deleted and created again."""

from pathlib import Path

import pytest

from stockade.cluster.node.node_service import NodeService
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import InconsistentTopicId, UnknownTopicOrPartition

from ..fakes import FakeHost
from .test_node import run


def test_a_request_with_the_id_of_a_deleted_topic_learns_of_the_new_one_also_where_that_has_fewer_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told that there was no such partition, and producers sent their batches again for two minutes."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        topics = service.at_controller().topics
        former, _ = await topics.create_topic("again", 3, None, TopicConfig())
        await topics.delete_topic("again", None)
        now, _ = await topics.create_topic("again", 1, None, TopicConfig())
        for partition in (0, 2):
            with pytest.raises(InconsistentTopicId) as told:
                await service.partition("again", partition, former.topic_id)
            assert told.value.fields["topic_id"] == now.topic_id
        for topic_id in (None, now.topic_id):
            with pytest.raises(UnknownTopicOrPartition):
                await service.partition("again", 2, topic_id)

    run(tmp_path, monkeypatch, scenario)
