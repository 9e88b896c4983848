"""What a blocking client says, and does, without a cluster."""

import gc
import logging
import socket
import time
import weakref

import pytest

from stockade.client.blocking.reader import BlockingClient
from stockade.client.blocking.waiting import Waiting
from stockade.client.blocking.writer import BlockingWriter
from stockade.client.config import ClientConfig
from stockade.client.errors import ClusterUnreachable
from stockade.partition.errors import LeaderNotAvailable, UnknownTopicOrPartition

from ..fake_cluster import FakeCluster, Fault

NODES = ("http://127.0.0.1:1", "http://127.0.0.1:2")
CONFIG = ClientConfig(bootstrap=NODES, retry_backoff_ms=1, retry_backoff_ms_max=5)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_log_says_after_a_second_which_nodes_do_not_answer_and_how_long_the_call_goes_on(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stockade.client")
    waiting = Waiting("GET /v1/topics", 120, CONFIG)
    for now_s in (0.5, 0.99, 1.0, 2.0):
        clock[0] = now_s
        for node in NODES:
            refused = ClusterUnreachable(f"{node}: Connection refused")
            waiting.failed(node, refused)
            waiting.pause_s(refused)
        assert len(caplog.messages) == (now_s >= 1.0)
    assert caplog.records[0].levelname == "WARNING"
    assert caplog.messages[0] == (
        "GET /v1/topics is not done after 1.0 s: http://127.0.0.1:1 (Connection refused), "
        "http://127.0.0.1:2 (Connection refused). The client goes on for 119 s, then the call fails"
    )
    waiting.answered()
    assert caplog.messages[1] == "GET /v1/topics was done after 2.0 s"


def test_the_log_names_the_refusal_of_a_node_that_answered(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Waiting("GET /v1/topics", 120, CONFIG)
    clock[0] = 1.0
    waiting.failed(NODES[0], LeaderNotAvailable("no majority"))
    waiting.pause_s(LeaderNotAvailable("no majority"))
    assert caplog.messages[0].startswith(
        "GET /v1/topics is not done after 1.0 s: http://127.0.0.1:1 (LEADER_NOT_AVAILABLE: no majority). The client"
    )


def test_the_last_attempt_and_a_refusal_of_the_request_itself_are_raised(clock: list[float]) -> None:
    waiting = Waiting("GET /v1/topics", 1, CONFIG)
    with pytest.raises(UnknownTopicOrPartition):
        waiting.pause_s(UnknownTopicOrPartition())
    clock[0] = 0.75  # the error asks for a pause of 0.2 s
    waiting.pause_s(ClusterUnreachable("no node"))
    clock[0] = 0.85
    with pytest.raises(ClusterUnreachable):
        waiting.pause_s(ClusterUnreachable("no node"))


def test_nothing_of_a_call_that_failed_waits_for_the_garbage_collector(clock: list[float]) -> None:
    waiting = Waiting("GET /v1/topics", 1, CONFIG)

    def failed() -> weakref.ref[UnknownTopicOrPartition]:
        with pytest.raises(UnknownTopicOrPartition):
            try:
                raise UnknownTopicOrPartition
            except UnknownTopicOrPartition as error:
                known = weakref.ref(error)
                waiting.pause_s(error)
        return known

    gc.disable()
    try:
        assert failed()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("patience_ms", [0, 50])
def test_connecting_to_a_dead_cluster_fails_soon_and_names_each_node(patience_ms: int) -> None:
    """A job planned for two minutes before it failed."""
    begun_s = time.monotonic()
    with pytest.raises(ClusterUnreachable) as refusal:
        BlockingClient(CONFIG).connect(patience_ms)
    assert time.monotonic() - begun_s < 20
    assert all(node in refusal.value.detail for node in NODES)


def test_one_node_that_can_be_connected_to_is_enough(cluster: FakeCluster) -> None:
    cluster.create("t")
    client = BlockingClient(ClientConfig(bootstrap=(*NODES, cluster.nodes[0])))
    client.connect(0)
    assert client.topics() == ["t"]
    client.close()


@pytest.mark.parametrize("kind", [BlockingClient, BlockingWriter])
def test_a_node_that_takes_connections_and_does_not_answer_is_asked_after_one_that_does(
    cluster: FakeCluster, kind: type[BlockingClient | BlockingWriter]
) -> None:
    """Each client of a Spark query waited half a minute for the first node: a micro-batch took 151 s instead of 1 s."""
    cluster.create("t")
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        silent = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        client = kind(ClientConfig(bootstrap=(silent, cluster.nodes[0]), standstill_ms=100))
        begun_s = time.monotonic()
        if isinstance(client, BlockingWriter):
            assert client.shape("t").partitions == 1
        else:
            client.connect(0)
            assert client.topics() == ["t"]
        assert time.monotonic() - begun_s < 20
        client.close()


@pytest.mark.parametrize("begins_by", ["connecting", "reading a topic", "the shape of a topic"])
def test_a_client_with_the_url_of_a_node_that_has_gone_asks_the_nodes_that_this_process_has_heard_of(
    cluster: FakeCluster, begins_by: str
) -> None:
    """A Spark query with one URL asked only that node, and ended with it while the others lived."""
    cluster.create("t")
    cluster.leader = 0 if begins_by == "connecting" else 1
    config = ClientConfig(bootstrap=cluster.nodes[0], retry_backoff_ms=1, standstill_ms=10_000)
    client, writer = BlockingClient(config), BlockingWriter(config)
    if begins_by == "connecting":
        client.connect(0)
    elif begins_by == "reading a topic":
        client.topic("t")
    else:
        writer.shape("t")
    cluster.kill(cluster.nodes[0])
    cluster.leader = 1
    assert client.offsets("t", 0) == (0, 0)
    assert writer.shape("t").partitions == 1
    next_client, next_writer = BlockingClient(config), BlockingWriter(config)
    assert next_client.offsets("t", 0) == (0, 0)
    assert next_writer.shape("t").partitions == 1
    for each in (client, writer, next_client, next_writer):
        each.close()


def test_a_client_turns_to_no_learned_node_that_does_not_answer(cluster: FakeCluster) -> None:
    """Through a port that leads to one node alone, each pause for a leader would take half a minute for each other."""
    cluster.create("t")
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        config = ClientConfig(bootstrap=cluster.nodes[0], retry_backoff_ms=1, standstill_ms=2_000)
        client = BlockingClient(config)
        client.learn([f"http://127.0.0.1:{stopped.getsockname()[1]}"])
        cluster.read_faults = [Fault.UNAVAILABLE, Fault.UNAVAILABLE]
        begun_s = time.monotonic()
        assert client.fetch_arrow("t", 0, 0) == (0, [])
        assert time.monotonic() - begun_s < 20
        client.close()


def test_a_client_with_tls_learns_no_node_without_it() -> None:
    client = BlockingClient("https://a.example:7101")
    client.learn(["http://b.example:7101", None, "https://c.example:7101"])
    assert client.nodes == ("https://a.example:7101", "https://c.example:7101")


def test_a_client_knows_a_hundred_nodes_at_most_the_newest_beside_its_own() -> None:
    client = BlockingClient("http://own.example:7101")
    for number in range(200):
        client.learn([f"http://node-{number}.example:7101"])
    assert len(client.nodes) == 100
    assert client.nodes[:2] == ("http://own.example:7101", "http://node-199.example:7101")


def test_a_node_without_tls_is_unreachable_each_time() -> None:
    """After a failed handshake the next attempt used what was left of the connection: its outcome was unknown."""
    with socket.create_server(("127.0.0.1", 0)) as plain:
        client = BlockingClient(
            ClientConfig(bootstrap=f"https://127.0.0.1:{plain.getsockname()[1]}", connect_timeout_ms=50)
        )
        for _ in range(2):
            with pytest.raises(ClusterUnreachable):
                client.connect(0)
