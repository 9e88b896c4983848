import subprocess
import sys
import threading
from asyncio import CancelledError
from dataclasses import replace
from typing import NoReturn

import pytest

from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed
from stockade.client.producer.queue.batch import Receipt
from stockade.partition.errors import MessageTooLarge, ProducerBusy, ProducerFenced, SessionExpired
from stockade.sync import Client, Consumer, Fence, Producer, Session

from ..fake_cluster import FakeCluster, Fault

LEASES = 40
"""More than a pool of asyncio has threads."""
PATIENCE_S = 10


@pytest.fixture
def config(cluster: FakeCluster) -> ClientConfig:
    return ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0, retry_backoff_ms=1, session_ttl_ms=3000)


def test_sent_records_are_stored_and_read_back(cluster: FakeCluster, config: ClientConfig) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REPLY]
    with Producer(config, name="writer") as producer:
        assert producer.name == "writer"
        receipt = producer.send("t", b"a", key=b"k").result(60)
        assert (receipt.offset, receipt.duplicate) == (0, True)
        batch = producer.send_batch("t", 0, [b"b", b"c"])
        producer.flush()
        assert batch.is_done
        assert batch.failure is None
    with Consumer(config) as consumer:
        assert [record.value for record in consumer.read("t")] == [b"a", b"b", b"c"]


def test_several_threads_share_one_producer(cluster: FakeCluster, config: ClientConfig) -> None:
    cluster.create("t")
    with Producer(config) as producer:
        work = [threading.Thread(target=lambda: producer.send("t", b"v").result(60)) for _ in range(8)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    assert len(cluster.values("t")) == 8


def test_an_exclusive_block_owns_its_partitions_and_frees_them(cluster: FakeCluster, config: ClientConfig) -> None:
    cluster.create("t")
    with Producer(config, name="owner") as producer, producer.exclusive("t") as fence:
        assert fence.epoch == 1
        assert not fence.is_lost
        producer.send("t", b"mine")
        with Session(producer.client, "other") as session, pytest.raises(ProducerBusy):
            session.acquire("t")
    assert cluster.values("t") == [b"mine"]
    assert cluster.grants == {}


def test_a_zombie_is_refused_and_the_block_raises_why(cluster: FakeCluster, config: ClientConfig) -> None:
    cluster.create("t")
    with (
        Producer(config, name="owner") as producer,
        pytest.raises(ProducerFenced),
        producer.exclusive("t") as fence,
    ):
        cluster.take_over("t")
        delivery = producer.send("t", b"zombie")
        assert fence.wait_lost(60)
        assert isinstance(fence.error, ProducerFenced)
        delivery.result(60)
    assert cluster.values("t") == []


def test_a_session_renews_itself_and_tells_when_it_is_lost(cluster: FakeCluster, config: ClientConfig) -> None:
    cluster.create("t")
    with Client(config) as client, Session(client, "me") as session:
        fence = session.acquire("t", [0])
        assert fence.token(0).session == session.id
        assert not fence.wait_lost(0.01)
        cluster.expired = True
        assert fence.wait_lost(60)
        assert isinstance(fence.error, SessionExpired)


def test_a_reader_that_stops_early_leaves_nothing_behind(cluster: FakeCluster, config: ClientConfig) -> None:
    cluster.create("t")
    with Producer(config) as producer:
        producer.send_batch("t", 0, [b"a", b"b"])
    with Consumer(config) as consumer:
        records = consumer.read("t", follow=True)
        assert next(records).value == b"a"
        records.close()  # type: ignore[attr-defined]


def test_outcomes_come_as_streams_and_to_watchers_and_callbacks(cluster: FakeCluster, config: ClientConfig) -> None:
    cluster.create("t")
    cluster.faults = [Fault.TOO_LARGE]
    watched: list[object] = []
    called: list[object] = []
    with Producer(config) as producer:
        successes, errors = producer.successes(), producer.errors()
        producer.on_outcome(lambda outcome, seconds: watched.append(outcome))
        failed = producer.send_batch("t", 0, [b"refused"])
        failed.add_done_callback(called.append)
        failure = next(errors)
        assert isinstance(failure.error, MessageTooLarge)
        producer.recover("t", 0)
        stored = producer.send_batch("t", 0, [b"taken"])
        receipt = next(successes)
        assert stored.receipt == receipt == stored.result(60)
    assert watched == [failure, receipt]
    assert called == [failed]
    assert [*successes, *errors] == []


def test_an_exclusive_block_that_sends_nothing_raises_at_its_end_why_it_was_lost(
    cluster: FakeCluster, config: ClientConfig
) -> None:
    cluster.create("t")
    with Producer(config) as producer:
        with pytest.raises(ProducerFenced), producer.exclusive("t") as fence:
            cluster.take_over("t")
            assert fence.wait_lost(60)
        with producer.exclusive("t", mode="ExclusiveWithFencing", cancel_on_loss=False) as fence:
            cluster.take_over("t")
            assert fence.wait_lost(60)


def test_code_without_a_loop_creates_topics_and_reads_the_cluster(cluster: FakeCluster, config: ClientConfig) -> None:
    with Client(config) as client, Consumer(config) as consumer:
        assert client.create_topic("made", partitions=2).name == "made"
        assert [topic.name for topic in consumer.client.topics()] == ["made"]
        assert client.config is config


def test_sys_exit_in_a_callback_ends_neither_the_background_thread_nor_its_caller(
    cluster: FakeCluster, config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("t")
    cluster.faults = [Fault.HOLD]
    with Producer(config) as producer, Session(producer.client, "me") as session:
        fence = session.acquire("t", mode="Shared")
        delivery = producer.send("t", b"a")
        for register in (delivery.add_done_callback, producer.on_outcome, fence.on_lost):
            register(leave)
        cluster.release_held()
        assert delivery.result(60).offset == 0
        assert producer.send("t", b"b").result(60).offset == 1
        fence.forget(leave)
    assert caplog.messages.count("a callback of a delivery failed") == 1
    assert caplog.messages.count("a watcher of outcomes failed") == 2


def test_a_partitioner_that_exits_ends_only_the_call(cluster: FakeCluster, config: ClientConfig) -> None:
    cluster.create("t", 2)
    with Producer(config, partitioner=lambda choice: sys.exit(str(choice))) as producer:
        with pytest.raises(SystemExit):
            producer.send("t", b"a", key=b"k")
        assert producer.send("t", b"b", partition=0).result(60).offset == 0


def leave(*_: object) -> NoReturn:
    sys.exit("done")


def test_a_timeout_of_0_returns_an_outcome_that_is_known(cluster: FakeCluster, config: ClientConfig) -> None:
    """With a time of 0 the answer was always that it had not happened: a loop until a loss went on after it."""
    cluster.create("t")
    with Producer(config) as producer:
        delivery = producer.send("t", b"v")
        heard: list[Receipt] = []
        delivery.add_done_callback(lambda done: heard.append(done.result()))  # on the thread that it must not wait for
        receipt = delivery.result(60)
        assert delivery.result(0) == receipt
        assert heard == [receipt]
        with pytest.raises(ProducerFenced), producer.exclusive("t", cancel_on_loss=False) as fence:
            assert not fence.wait_lost(0)
            cluster.take_over("t")
            producer.send("t", b"late")
            assert fence.wait_lost(60)
            assert fence.wait_lost(0)
    with Client(config) as client:
        with Session(client, "s") as session:
            assert not session.wait_lost(0)
        assert session.wait_lost(0)


def test_a_callback_that_waits_for_its_own_thread_is_told_so_and_holds_up_no_one(
    cluster: FakeCluster, config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("t")
    with Producer(config) as producer:
        delivery = producer.send("t", b"v")
        delivery.add_done_callback(lambda _: producer.flush())
        delivery.result(60)
        producer.send("t", b"w").result(60)
    assert "a callback on the background thread cannot wait for it" in caplog.text


def test_an_exclusive_block_with_reacquire_raises_at_its_end_a_loss_after_which_it_cannot_go_on(
    cluster: FakeCluster, config: ClientConfig
) -> None:
    """It ended as if all were well; the asynchronous block raises."""
    cluster.create("t")

    def told(fence: Fence) -> None:
        if fence.epoch == 3:
            raise ValueError("the tail is not what it was")

    with (
        Producer(config) as producer,
        pytest.raises(ClientClosed, match="the tail is not what it was"),
        producer.exclusive("t", reacquire=told) as fence,
    ):
        cluster.close_session(fence.session_id)
        again = fence.again()
        cluster.close_session(again.session_id)
        with pytest.raises(ClientClosed):
            again.again()


def test_an_exclusive_block_with_reacquire_ends_well_after_a_loss_that_was_made_good(
    cluster: FakeCluster, config: ClientConfig
) -> None:
    cluster.create("t")
    with Producer(config) as producer, producer.exclusive("t", reacquire=lambda _: None) as fence:
        cluster.close_session(fence.session_id)
        fence.again()
        producer.send("t", b"again").result(60)
    assert cluster.values("t") == [b"again"]


def test_callbacks_that_block_are_all_called_and_leave_the_pool_to_the_look_up_of_names(
    cluster: FakeCluster, config: ClientConfig
) -> None:
    """They filled the loop's pool: others were not called, and no node with a name was found by any call."""
    cluster.create("t", LEASES)
    named = replace(config, bootstrap=tuple(url.replace("127.0.0.1", "localhost") for url in cluster.nodes))
    all_called, called = threading.Barrier(LEASES), list[int]()

    def told(fence: object) -> None:
        assert isinstance(fence, Fence)
        all_called.wait(PATIENCE_S)
        with Client(named) as other:
            called.append(other.tail("t", 0, 1).log_end)

    with Client(config) as client, Session(client, "me", ttl_ms=3000, reacquire=told) as session:
        fences = [session.acquire("t", [partition]) for partition in range(LEASES)]
        client.close_session(session.id)
        for fence in fences:
            fence.again()
    assert len(called) == LEASES


@pytest.mark.parametrize("kind", [StopIteration, SystemExit, CancelledError])
def test_whatever_a_reacquire_callback_raises_its_lease_is_held_and_again_answers_it(
    cluster: FakeCluster, config: ClientConfig, kind: type[BaseException]
) -> None:
    """After StopIteration `again` never returned; after SystemExit it told of a bug in the client."""
    cluster.create("t")

    def told(_: object) -> None:
        raise kind

    with Client(config) as client, Session(client, "me", ttl_ms=3000, reacquire=told) as session:
        fence = session.acquire("t")
        client.close_session(session.id)
        again = list[Fence]()
        waiting = threading.Thread(target=lambda: again.append(fence.again()), daemon=True)
        waiting.start()
        waiting.join(PATIENCE_S)
        assert [each.error for each in again] == [None]


NEVER_CLOSED = """
import sys
from stockade import ClientConfig
from stockade.sync import Producer

closed, left = (Producer(ClientConfig(bootstrap=sys.argv[1:], linger_ms=60_000), name=name).start() for name in "ab")
for producer in (closed, left):
    producer.send("t", producer.name.encode())
closed.close()
"""


def test_a_program_that_ends_without_a_close_tells_how_many_records_it_leaves(cluster: FakeCluster) -> None:
    """It lost them without a word, with exit code 0."""
    cluster.create("t")
    command = [sys.executable, "-c", NEVER_CLOSED, *cluster.nodes]
    ended = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    told = "producer b was stopped without a flush: 1 records were not sent, and of 0 the outcome is unknown"
    assert ended.stderr.splitlines()[0].startswith(told)
    assert len(ended.stderr.splitlines()) == 1
    assert cluster.values("t") == [b"a"]
