"""A replica as the HTTP interface uses it, over a group that commits everything at once."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stockade.cluster.features import Features
from stockade.cluster.model import CommittedPosition, Conditions, ReadGuard
from stockade.cluster.replica.replica import Replica
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import (
    PRODUCER_EPOCH_MAX,
    SEQUENCE_MODULUS,
    InstallFence,
    InstallProducer,
    InstallReader,
    Stamp,
    Token,
    encode_command,
)
from stockade.partition.config import PartitionConfig
from stockade.partition.durable.stored_machine import StoredMachine
from stockade.partition.errors import (
    FeatureLevelTooLow,
    InvalidRequest,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    NotOwner,
    OffsetMismatch,
    OffsetOutOfRange,
    ProducerBusy,
    ProducerFenced,
    StockadeError,
    TopicSealed,
)
from stockade.partition.log.segments import SegmentLog
from stockade.partition.records.batch import Batch, batch_from_columns
from stockade.partition.state import message_ids
from stockade.partition.state.producers import FORGOTTEN
from stockade.raft.core.group import Committed, NotLeader, Outcome, Rejected, Unknown

TOPIC_ID = 812
RECEIVED_MS = 1_700_000_000_000


class Group:
    """Applies what is proposed; ``lost`` says what becomes of a proposal instead."""

    group_id = 77
    leader = "n1"
    voters: tuple[str, ...] = ("n1",)
    ready = True
    on_applied: Callable[[Any], None]

    def __init__(self, machine: StoredMachine) -> None:
        self.machine = machine
        self.is_leader = True
        self.term = 3
        self.index = 0
        self.lags: dict[str, int] = {}
        self.lost: Outcome | None = None
        self.hangs = False

    async def propose(self, command: bytes, timeout_s: float) -> Outcome:
        if self.hangs:
            await asyncio.Event().wait()
        if self.lost is not None:
            return self.lost
        self.index += 1
        result = self.machine.apply(self.index, self.term, command)
        self.on_applied(self)
        return Committed(self.index, self.term, result)

    async def read_barrier(self, timeout_s: float) -> None:
        pass


def replica(
    directory: Path,
    config: TopicConfig | None = None,
    segment_bytes_max: int = 1 << 20,
    timeout_s: float = 1.0,
    open_group: Any = Group,
) -> Replica:
    log = SegmentLog(segment_bytes_max)
    log.begin(directory)
    stored = StoredMachine(PartitionConfig(TOPIC_ID), log)

    async def enrol(pid: int, group: int, timeout_s: float) -> tuple[int, int, str]:
        return 4, 1000, ""

    return Replica(
        ("t", TOPIC_ID, 0),
        config or TopicConfig(),
        stored,
        open_group,
        features=Features(),
        urls={node_id: f"http://{node_id}" for node_id in ("n1", "n2", "n3")},
        enrol=enrol,
        timeout_s=timeout_s,
    )


def group_of(one: Replica) -> Group:
    assert isinstance(one.group, Group)
    return one.group


def batch(count: int = 1, received_ms: int = RECEIVED_MS) -> Batch:
    return batch_from_columns([None] * count, [b"v"] * count, None, None, now_ms=received_ms, batch_bytes_max=1 << 20)


def segments(directory: Path) -> dict[int, int]:
    """Size of every segment, by its first offset."""
    return {int(path.stem): path.stat().st_size for path in sorted(directory.glob("*.arrow"))}


async def append(
    one: Replica, count: int = 1, received_ms: int = RECEIVED_MS, **options: Any
) -> tuple[int | None, bool]:
    answer = await one.append(batch(count, received_ms), Conditions(**options))
    return answer.base_offset, answer.duplicate


Scenario = Callable[[Path], Coroutine[Any, Any, None]]


def scenario(body: Scenario) -> Callable[[Path], None]:
    """A test that is a coroutine."""

    def test(tmp_path: Path) -> None:
        asyncio.run(body(tmp_path))

    test.__doc__ = body.__doc__
    return test


@scenario
async def test_the_configuration_of_the_topic_is_in_force_before_the_first_write(tmp_path: Path) -> None:
    one = replica(tmp_path, TopicConfig(dedupe_window_ms=1000, max_producers=7))
    assert not one.is_configured
    assert await append(one, 2, message_id="m") == (0, False)
    assert one.is_configured
    assert await append(one, 2, message_id="m") == (0, True)
    assert (one.machine.config.max_producers, one.machine.config_order, group_of(one).index) == (7, TOPIC_ID, 3)
    assert one.status().config_order == TOPIC_ID


@scenario
async def test_a_later_configuration_is_put_in_force_by_the_leader_alone(tmp_path: Path) -> None:
    one = replica(tmp_path)
    await append(one)
    one.reconfigure(TopicConfig(), is_sealed=True, order=900)
    one.reconfigure(TopicConfig(), is_sealed=False, order=899)
    group_of(one).is_leader = False
    await one.configure()
    assert not one.is_configured
    group_of(one).is_leader = True
    with pytest.raises(TopicSealed):
        await append(one)
    assert one.machine.config_order == 900


@scenario
async def test_a_write_that_found_no_configuration_was_not_proposed(tmp_path: Path) -> None:
    one = replica(tmp_path)
    group_of(one).lost = Unknown(3)
    with pytest.raises(LeaderNotAvailable):
        await append(one)
    group_of(one).lost = Rejected("n2", 4)
    with pytest.raises(NotLeaderOrFollower):
        await append(one)


@scenario
async def test_writes_that_wait_for_the_configuration_wait_no_longer_than_one_request(tmp_path: Path) -> None:
    one = replica(tmp_path, timeout_s=0.5)
    group_of(one).hangs = True
    started = asyncio.get_running_loop().time()
    results = await asyncio.gather(*(append(one) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(result, LeaderNotAvailable) for result in results)
    assert asyncio.get_running_loop().time() - started < 10, "which twenty waits in turn take"


@scenario
async def test_a_producer_that_is_new_here_is_enrolled_with_the_order_of_the_answer(tmp_path: Path) -> None:
    one = replica(tmp_path)
    assert await append(one, stamp=Stamp(1001, 4, 0)) == (0, False)
    entry = one.machine.producer(1001)
    assert entry is not None
    assert (entry.run.epoch, entry.order) == (4, 1000)


@scenario
async def test_a_refusal_of_the_registry_carries_an_unknown_outcome(tmp_path: Path) -> None:
    async def refuse(pid: int, group: int, timeout_s: float) -> tuple[int, int, str]:
        raise ProducerFenced(reason="identity", current_epoch=3)

    one = replica(tmp_path)
    one._enrol = refuse
    with pytest.raises(ProducerFenced) as refusal:
        await append(one, stamp=Stamp(1001, 4, 0))
    assert refusal.value.fields["outcome"] == FORGOTTEN.fields()
    assert (refusal.value.fields["reason"], refusal.value.fields["current_epoch"]) == ("identity", 3)


@scenario
async def test_a_message_id_needs_a_window(tmp_path: Path) -> None:
    one = replica(tmp_path)
    with pytest.raises(InvalidRequest):
        await append(one, message_id="m")


@scenario
async def test_the_status_of_a_producer_is_that_of_the_partitions_table(tmp_path: Path) -> None:
    one = replica(tmp_path)
    assert await one.producer(1001) is None
    group_of(one).machine.apply(9, 3, encode_command(InstallProducer(1001, 4)))
    assert await one.producer(1001) is None, "it is known, and has stored nothing"
    await append(one, 3, stamp=Stamp(1001, 4, 0))
    known = await one.producer(1001)
    assert known is not None
    assert (known.topic, known.partition, known.producer_epoch, known.last_seq, known.last_offset) == ("t", 0, 4, 2, 2)
    assert [(b.first_seq, b.last_seq, b.base_offset, b.timestamp_ms) for b in known.batches] == [(0, 2, 0, RECEIVED_MS)]


def install(one: Replica, command: InstallFence | InstallReader) -> None:
    group_of(one).machine.apply(9, 3, encode_command(command))


@scenario
async def test_041_a_read_under_guard_ends_when_another_session_owns_the_partition(tmp_path: Path) -> None:
    one = replica(tmp_path)
    await append(one)
    install(one, InstallReader("g", 1))

    async def read(wait_ms: int, start: int = 0) -> int:
        found = await one.read(
            start, max_bytes=1000, min_bytes=1, max_wait_ms=wait_ms, local=False, guard=ReadGuard("g", 1)
        )
        return found.next_offset

    assert await read(0) == 1
    waiting = asyncio.ensure_future(read(10_000, start=1))
    await asyncio.sleep(0)
    install(one, InstallReader("g", 2))
    await append(one)
    with pytest.raises(NotOwner) as refusal:
        await waiting
    assert refusal.value.fields == {"fence_epoch": 2, "group": "g", "resource": "t/0"}
    with pytest.raises(NotOwner):
        await read(0)


@scenario
async def test_no_linearizable_read_answers_before_it_is_proved_that_this_node_leads(tmp_path: Path) -> None:
    """A leader that was replaced and has not heard of it would answer with what is overtaken."""
    one = replica(tmp_path)
    await append(one)

    async def deposed(timeout_s: float) -> None:
        raise NotLeader("n2", 4)

    def read(*, local: bool, guard: ReadGuard | None = None) -> Coroutine[Any, Any, object]:
        return one.read(0, max_bytes=1000, min_bytes=1, max_wait_ms=0, local=local, guard=guard)

    group_of(one).read_barrier = deposed  # type: ignore[method-assign]
    for reading in (
        read(local=False),
        read(local=True, guard=ReadGuard("g", 1)),
        one.read_tail(1),
        one.find_offset(None),
        one.position("g"),
        one.fences(),
        one.contents(1, lambda _: True),
        one.latest_producers(1),
        one.producer(1001),
        one.stages(""),
    ):
        with pytest.raises(NotLeaderOrFollower):
            await reading
    await read(local=True)


@scenario
async def test_a_local_read_beyond_this_replicas_log_says_that_its_bounds_may_be_stale(tmp_path: Path) -> None:
    """A replica that lags behind refuses offsets that were written long ago; its log_end is no proof."""
    one = replica(tmp_path)
    await append(one)

    async def refused(offset: int, *, local: bool, wait_ms: int = 0) -> dict[str, Any]:
        with pytest.raises(OffsetOutOfRange) as refusal:
            await one.read(offset, max_bytes=1 << 20, min_bytes=1 << 20, max_wait_ms=wait_ms, local=local)
        return refusal.value.fields

    assert await refused(2, local=True) == {"offset": 2, "log_start": 0, "log_end": 1, "stale": True}
    assert "stale" not in await refused(2, local=False)
    waiting = asyncio.ensure_future(refused(0, local=True, wait_ms=10_000))
    await asyncio.sleep(0)
    await one.trim(None, topic_id=None, token=None)
    assert await waiting == {"offset": 0, "log_start": 1, "log_end": 1, "stale": True}
    await append(one, 2)
    waiting = asyncio.ensure_future(refused(1, local=True, wait_ms=10_000))
    await asyncio.sleep(0)
    await one.trim(2, topic_id=None, token=None)
    assert await waiting == {"offset": 1, "log_start": 2, "log_end": 3, "stale": True}, "its file is still here"


@scenario
async def test_a_position_is_committed_and_found(tmp_path: Path) -> None:
    one = replica(tmp_path)
    await append(one, 5)
    assert await one.position("g") == CommittedPosition(None, None)
    await one.commit_position("g", 3, "note", None)
    assert await one.position("g") == CommittedPosition(3, "note")
    install(one, InstallReader("g", 1))
    with pytest.raises(NotOwner) as refusal:
        await one.commit_position("g", 4, None, None)
    assert refusal.value.fields["resource"] == "t/0"
    with pytest.raises(OffsetOutOfRange):
        await one.commit_position("g", 6, None, 1)


@scenario
async def test_a_log_begins_at_an_offset_once(tmp_path: Path) -> None:
    one = replica(tmp_path)
    assert await one.begin_at(40, topic_id=TOPIC_ID) == (40, 40)
    await append(one, 2)
    assert (one.machine.log_start, one.machine.log_end) == (40, 42)
    with pytest.raises(OffsetMismatch):
        await one.begin_at(50, topic_id=None)


@scenario
async def test_a_log_begins_elsewhere_only_when_no_node_has_older_software(tmp_path: Path) -> None:
    one = replica(tmp_path)
    one.features = Features(level=1)
    with pytest.raises(FeatureLevelTooLow) as refused:
        await one.begin_at(40, topic_id=None)
    assert refused.value.fields == {"feature_level": 1, "needed": 2}
    assert one.machine.log_end == 0


@scenario
async def test_a_position_is_forgotten_only_when_no_node_has_older_software(tmp_path: Path) -> None:
    one = replica(tmp_path)
    one.features = Features(level=1)
    await one.commit_position("g", 0, None, None)
    with pytest.raises(FeatureLevelTooLow) as refused:
        await one.commit_position("g", None, None, None)
    assert refused.value.fields == {"feature_level": 1, "needed": 2}
    assert await one.position("g") == CommittedPosition(0, None)
    one.features = Features(level=2)
    await one.commit_position("g", None, None, None)
    assert await one.position("g") == CommittedPosition(None, None)


@scenario
async def test_trimming_needs_the_slot_and_tells_where_the_log_begins(tmp_path: Path) -> None:
    one = replica(tmp_path)
    await append(one, 5)
    assert await one.trim(2, topic_id=TOPIC_ID, token=None) == (2, 5)
    install(one, InstallFence("g-812-1", 1, "s", "loader", "Exclusive", 5, "client", 60))
    with pytest.raises(ProducerBusy):
        await one.trim(None, topic_id=None, token=None)
    assert await one.trim(None, topic_id=None, token=Token("g-812-1", 1, "s")) == (5, 5)
    (present,) = await one.fences()
    assert (present.grant_id, present.client_id, present.since_ms, present.until_ms) == ("g-812-1", "client", 60, None)


@scenario
async def test_retention_drops_whole_segments_by_size_and_by_age(tmp_path: Path) -> None:
    one = replica(tmp_path, TopicConfig(retention_ms=1000), segment_bytes_max=2000)
    for second in range(10):
        await append(one, received_ms=RECEIVED_MS + 1000 * second)
    sizes = segments(tmp_path)
    bases = list(sizes)
    assert len(bases) > 3
    await one.retain(
        RECEIVED_MS + 1000 * (bases[2] - 1) + 1000
    )  # the newest of the second segment is just young enough
    assert one.machine.log_start == bases[1]
    await one.retain(RECEIVED_MS + 1000 * (bases[2] - 1) + 1001)
    assert one.machine.log_start == bases[2]
    one.reconfigure(TopicConfig(retention_bytes=4000), is_sealed=False, order=900)
    await one.retain(RECEIVED_MS)
    assert one.machine.log_start in bases
    assert sum(size for base, size in sizes.items() if base >= one.machine.log_start) <= 4000
    one.reconfigure(TopicConfig(retention_bytes=0, retention_ms=0), is_sealed=False, order=901)
    await one.retain(RECEIVED_MS)
    assert one.machine.log_start == bases[-1], "the last segment goes by age alone"
    await one.retain(RECEIVED_MS + 1_000_000)
    assert one.machine.log_start == one.machine.log_end == 10


@scenario
async def test_an_idle_producer_is_forgotten_without_further_writes(tmp_path: Path) -> None:
    one = replica(tmp_path, TopicConfig(producer_ttl_ms=1000))
    await append(one, stamp=Stamp(1001, 4, 0))
    proposed = group_of(one).index
    await one.retain(RECEIVED_MS)
    assert group_of(one).index == proposed, "nothing was due"
    one.now_ms = lambda: one.machine.clock_ms + 1000  # type: ignore[method-assign]
    await one.retain(RECEIVED_MS)
    assert one.machine.producer(1001) is None


def test_a_name_that_is_due_makes_room_from_level_2_on_though_an_older_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ids, "MESSAGE_IDS_MAX", 2)

    async def run() -> None:
        one = replica(tmp_path, TopicConfig(dedupe_window_ms=86_400_000))
        await append(one, message_id="long")
        one.reconfigure(TopicConfig(dedupe_window_ms=1000), is_sealed=False, order=900)
        await append(one, message_id="short")
        clock_ms = one.machine.clock_ms + 1000
        one.now_ms = lambda: clock_ms  # type: ignore[method-assign]
        one.features = Features(level=1)
        assert not one.has_due(RECEIVED_MS), "nodes of the release before know no such command"
        one.features = Features(level=2)
        assert one.has_due(RECEIVED_MS)
        await one.retain(RECEIVED_MS)
        assert not one.has_due(RECEIVED_MS)
        assert await append(one, message_id="more") == (2, False)

    asyncio.run(run())


@scenario
async def test_the_lease_clock_runs_within_a_term_and_continues_in_the_next(tmp_path: Path) -> None:
    one = replica(tmp_path)
    install(one, InstallReader("g", 1))
    one.machine.clock_ms = 5_000
    now_s = 7.0
    one._monotonic = lambda: now_s
    assert one.now_ms() == 5_000
    now_s += 2.5
    assert one.now_ms() == 7_500
    one.machine.clock_ms = 90_000
    assert one.now_ms() == 90_000, "the leader had not known yet where the clock stood"
    group_of(one).term = 4
    one.machine.clock_ms = 90_001
    assert one.now_ms() == 90_001


@scenario
async def test_a_follower_refuses_writes_and_names_the_leader(tmp_path: Path) -> None:
    one = replica(tmp_path)
    group_of(one).is_leader = False
    for step in (
        append(one),
        one.trim(None, topic_id=None, token=None),
        one.commit_position("g", 0, None, None),
    ):
        with pytest.raises(NotLeaderOrFollower) as refusal:
            await step
        assert refusal.value.fields["leader"] == "http://n1"


@scenario
async def test_refused_appends_leave_nothing_behind(tmp_path: Path) -> None:
    """A refusal that is raised leads by its traceback to the outcome that holds it: the collector must see that one."""
    one = replica(tmp_path)
    await append(one)

    def left() -> int:
        gc.collect()
        return sum(isinstance(each, OffsetMismatch) for each in gc.get_objects())

    before = left()
    for _ in range(20):
        with pytest.raises(OffsetMismatch):
            await append(one, if_log_end=7)
    assert left() <= before + 1


@pytest.mark.parametrize(
    ("pid", "epoch", "first_seq"),
    [(-1, 0, 0), (1 << 63, 0, 0), (7, -1, 0), (7, PRODUCER_EPOCH_MAX + 1, 0), (7, 0, -1), (7, 0, SEQUENCE_MODULUS)],
)
def test_a_stamp_out_of_range_is_not_proposed(tmp_path: Path, pid: int, epoch: int, first_seq: int) -> None:
    """Found in apply, it would stop every replica, at every start."""

    async def test() -> None:
        one = replica(tmp_path)
        await one.configure()
        proposed = group_of(one).index
        conditions = Conditions(stamp=Stamp(pid, epoch, first_seq))
        with pytest.raises(AssertionError):
            await one.append(batch(), conditions)
        with pytest.raises(AssertionError):
            one.submit(batch(), conditions, lambda _: None)
        with pytest.raises(AssertionError):
            await one.append_stage("s", 1, conditions)
        assert group_of(one).index == proposed

    asyncio.run(test())


@scenario
async def test_a_stamp_at_the_ends_of_its_range_is_proposed(tmp_path: Path) -> None:
    one = replica(tmp_path)
    await one.configure()
    before = group_of(one).index
    for stamp in (Stamp(0, 0, 0), Stamp((1 << 63) - 1, PRODUCER_EPOCH_MAX, SEQUENCE_MODULUS - 1)):
        with pytest.raises(StockadeError):
            await one.append(batch(), Conditions(stamp=stamp))
        assert group_of(one).index > before
