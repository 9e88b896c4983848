"""Ctrl-C in a blocking call, at the moments in which the background thread is faster than the caller."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stockade.client.blocking import loop_thread
from stockade.client.blocking.loop_thread import LoopThread
from stockade.client.config import ClientConfig
from stockade.client.consumer.consumer import Consumer as Twin
from stockade.client.consumer.group import GroupReading, _Claim
from stockade.client.consumer.records import Piece
from stockade.client.producer.results import ProducerErrors
from stockade.client.session.session import Session as SessionTwin
from stockade.partition.records.batch import decode_batch, message_from_columns
from stockade.sync import Client, Consumer, Producer, Session
from stockade.sync import GroupReading as BlockingGroupReading

from ..consumer.test_consumer import fill
from ..fake_cluster import FakeCluster, Fault


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def interrupted(monkeypatch: pytest.MonkeyPatch, read: Callable[[], object]) -> None:
    """Ctrl-C comes when ``read`` has an item that the caller has not seen yet."""
    with monkeypatch.context() as patched:

        async def with_ctrl_c(items: Any, over: object) -> object:
            item = await anext(items, over)
            ctrl_c()
            return item

        patched.setattr(loop_thread, "_next", with_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            read()


def test_ctrl_c_while_work_is_handed_over_is_that_error_and_cancels_the_work() -> None:
    """It was a ValueError, "coroutine already executing", and the work went on."""
    thread = LoopThread()
    begun, ended = threading.Event(), threading.Event()
    threads: list[str] = []

    async def nothing() -> None: ...

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            threads.append(threading.current_thread().name)
            raise
        finally:
            ended.set()

    thread.run(nothing())
    loop = thread._loop
    assert loop is not None
    hand_over = loop.call_soon_threadsafe

    def and_ctrl_c(callback: Callable[..., object], *args: Any) -> Any:
        loop.call_soon_threadsafe = hand_over  # type: ignore[method-assign]
        hand_over(callback, *args)
        assert begun.wait(10)
        raise KeyboardInterrupt

    loop.call_soon_threadsafe = and_ctrl_c  # type: ignore[assignment,method-assign]
    with pytest.raises(KeyboardInterrupt):
        thread.run(work())
    assert ended.wait(10)
    assert threads == ["stockade.sync"]
    thread.stop()


def test_a_record_that_ctrl_c_kept_from_the_application_comes_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was skipped, and the positions said that the application had it."""
    cluster.create("t")
    fill(cluster, [b"0", b"1", b"2"])
    with Consumer(cluster.nodes) as consumer, consumer.pieces("t") as reading:
        records = reading.records()
        assert next(records).offset == 0
        interrupted(monkeypatch, lambda: next(records))
        assert reading.positions == {0: 1}
        assert [record.offset for record in reading.records()] == [1, 2]


def test_a_piece_that_ctrl_c_kept_from_the_application_comes_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t")
    fill(cluster, [b"0", b"1"])
    with Consumer(cluster.nodes) as consumer, consumer.pieces("t") as reading:
        interrupted(monkeypatch, lambda: next(iter(reading)))
        assert [piece.base_offset for piece in reading] == [0]


def test_a_record_passed_by_another_iteration_is_fetched_again(cluster: FakeCluster) -> None:
    cluster.create("t")
    fill(cluster, [b"0", b"1"])

    async def run() -> None:
        async with Twin(cluster.nodes) as consumer, consumer.pieces("t") as reading:
            first = await anext(reading.records())
            assert [piece.base_offset async for piece in reading] == [1]
            reading.put_back(first)
            assert reading.positions == {0: 0}
            assert [record.offset async for record in reading.records()] == [0, 1]

    asyncio.run(run())


def group_reading(client: Client) -> tuple[BlockingGroupReading, _Claim]:
    """A member that owns a partition, and has two pieces of it."""
    twin = GroupReading(client.twin, SessionTwin(client.twin, "m"), "g", "t", 1, "earliest")
    claim = twin._claims["t/0"] = _Claim("t/0", 0, 1)
    reading = BlockingGroupReading(twin)

    def fetched() -> None:
        for base in (0, 3):
            rows = decode_batch(message_from_columns([None] * 3, [b"v"] * 3, [1] * 3, None))
            twin._ready.put_nowait((claim, Piece("t", 0, base, rows)))

    reading._call(fetched)
    return reading, claim


def test_a_group_commits_no_record_that_ctrl_c_kept_from_the_application(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed as processed, so no member ever got it."""
    with Client(cluster.nodes) as client:
        reading, _ = group_reading(client)
        records = iter(reading)
        assert next(records).offset == 0
        interrupted(monkeypatch, lambda: next(records))
        assert reading.positions == {0: 1}
        again = iter(reading)
        assert [next(again).offset for _ in range(3)] == [1, 2, 3]


def test_a_group_gives_a_piece_again_that_ctrl_c_kept_from_the_application(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(cluster.nodes) as client:
        reading, _ = group_reading(client)
        interrupted(monkeypatch, lambda: next(reading.pieces()))
        again = reading.pieces()
        assert [next(again).base_offset for _ in range(2)] == [0, 3]


def test_a_partition_in_which_another_iteration_is_further_goes_back_to_its_committed_position(
    cluster: FakeCluster,
) -> None:
    with Client(cluster.nodes) as client:
        reading, claim = group_reading(client)
        pieces = reading.pieces()
        first, _ = next(pieces), next(pieces)
        reading._call(lambda: reading.twin.put_back(next(first.records())))
        assert (claim.position, claim.is_over, reading.partitions) == (0, True, [])
        reading._call(lambda: reading.twin.put_back(first))  # given up already
        assert claim.position == 0


def test_a_grant_that_ctrl_c_kept_from_the_application_is_given_up(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session held it, unknown to the application, and nothing released it."""
    cluster.create("t")
    acquire = SessionTwin.acquire

    async def with_ctrl_c(*args: Any, **kwargs: Any) -> Any:
        fence = await acquire(*args, **kwargs)
        ctrl_c()
        return fence

    with Client(ClientConfig(bootstrap=cluster.nodes)) as client, Session(client, "s") as session:
        with monkeypatch.context() as patched:
            patched.setattr(SessionTwin, "acquire", with_ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                session.acquire("t")
        session.release(session.acquire("t", [0], producer_name="next"))
        assert cluster.grants == {}


def test_a_failure_that_ctrl_c_kept_from_the_application_is_unseen_and_comes_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t", 2)
    cluster.faults = [Fault.TOO_LARGE] * 2
    producer = Producer(ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0), name="writer").start()
    errors = producer.errors()
    producer.send_batch("t", 0, [b"a"])
    interrupted(monkeypatch, lambda: next(errors))
    assert next(producer.errors()).partition == 0
    errors = producer.errors()
    producer.send_batch("t", 1, [b"b"])
    interrupted(monkeypatch, lambda: next(errors))
    with pytest.raises(ProducerErrors) as closed:
        producer.close()
    assert [failure.partition for failure in closed.value.failures] == [1]


def test_resources_that_ctrl_c_kept_from_the_application_are_given_up(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session owned them, unknown to the application, as long as it was renewed."""
    own = SessionTwin.own

    async def with_ctrl_c(*args: Any, **kwargs: Any) -> Any:
        owned = await own(*args, **kwargs)
        ctrl_c()
        return owned

    with Client(ClientConfig(bootstrap=cluster.nodes)) as client, Session(client, "s") as session:
        kept = session.own("g", "kept")
        with monkeypatch.context() as patched:
            patched.setattr(SessionTwin, "own", with_ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                session.own("g", ["a", "b"])
        session.own("g", "next")  # waits until nothing is left of it
        with Session(client, "other") as other:
            assert [each.resource for each in other.own("g", ["a", "b"])] == ["a", "b"]
        assert kept.error is None
