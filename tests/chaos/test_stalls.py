"""Pauses as a garbage collector makes them, at the worst moments: a holder that sleeps through a takeover is a zombie,
and is refused. What it hears late of writes of before is judged by the log: a write that was committed in time
stays so.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from stockade.chaos.system.waiting import until
from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.client.session.session import Session
from stockade.partition.api.records import AppendAnswer
from stockade.partition.commands import Stamp
from stockade.partition.errors import ProducerFenced, StockadeError

from .broken_node import program, stopping
from .holder import Learnt, write
from .stalling import LONG_TTL_MS, PATIENCE_S, Holding, Play, Stage, assert_certified, assert_true

pytestmark = pytest.mark.processes

SHORT_TTL_MS = 1_500
CONTENDERS = 4


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stops = tmp_path_factory.mktemp("stops")
    data = tmp_path_factory.mktemp("data")
    with LocalCluster(data, 3, port_base=0, restart=False, program=program(stopping(stops))) as local:
        yield Stage(local, Path(stops))


STORED = {"append-received": False, "append-copied": True, "append-applied": True}
"""Whether an append survives its leader's stop at a point: nothing was proposed; a follower had it, so that only who
has it can be elected; it was committed.
"""


@pytest.mark.parametrize("point", STORED)
def test_a_leader_that_slept_through_a_takeover_is_right_about_the_append_that_it_had_in_hand(
    stage: Stage, point: str
) -> None:
    async def scenario() -> None:
        async with stage.on_stage() as play:
            leader = await play.leader()
            identity = await play.client.init_producer()
            session = await Session(play.client, "old", ttl_ms=LONG_TTL_MS).open()
            token = (await session.acquire(play.topic, [0], mode="Exclusive")).token(0)
            await write(play.client, play.topic, "old/0", token, Stamp(identity.producer_id, 0, 0))

            stage.arm(point, pid := stage.pid(leader))
            stamp = Stamp(identity.producer_id, identity.producer_epoch, 1)
            append = play.raw(leader).append(play.topic, 0, [("old/1", b"old/1")], token=token, stamp=stamp)
            in_hand = asyncio.create_task(append)
            await stage.stopped(pid)
            await play.take_over("new", "ExclusiveWithFencing")
            os.kill(pid, signal.SIGCONT)

            late = await outcome_of(in_hand)
            with pytest.raises(ProducerFenced) as refused:
                await write(play.client, play.topic, "old/1", token, stamp)
            log = await play.log()
            assert ("old/1" in log.names) == STORED[point]
            offset = dict(zip(log.names, log.offsets, strict=True)).get("old/1")
            assert_certified(offset, refused.value.fields["outcome"])
            assert_right(late, offset)

    asyncio.run(scenario())


async def outcome_of(request: "asyncio.Task[AppendAnswer]") -> AppendAnswer | StockadeError:
    try:
        return await request
    except StockadeError as error:
        return error


def assert_right(late: AppendAnswer | StockadeError, offset: int | None) -> None:
    """A late answer may be unknown; what it claims must be so."""
    if isinstance(late, AppendAnswer):
        assert late.base_offset == offset is not None
    elif "outcome" in late.fields and isinstance(late, ProducerFenced):
        assert_certified(offset, late.fields["outcome"])
    elif late.no_side_effects:
        assert offset is None, f"{late!r}, and yet the record is at {offset}"


@pytest.mark.parametrize("point", ["produce-begun", "produce-written", "produce-answered"])
def test_a_producer_that_slept_before_during_or_after_a_request_is_refused_and_told_what_became_of_it(
    stage: Stage, point: str
) -> None:
    async def scenario() -> None:
        async with stage.on_stage() as play, play.holding("old", LONG_TTL_MS) as holding:
            await holding.grown()
            stage.arm(point, holding.process.pid)
            await stage.stopped(holding.process.pid)
            await play.take_over("new", "ExclusiveWithFencing")
            holding.signal(signal.SIGCONT)
            await holding.ended()
            assert {learnt.code for learnt in holding.refused} == {"PRODUCER_FENCED"}
            assert_true(await play.log(), holding.learnt)

    asyncio.run(scenario())


def test_a_producer_and_its_leader_that_slept_for_longer_than_its_session_lives_make_way_and_stay_out(
    stage: Stage,
) -> None:
    async def scenario() -> None:
        async with stage.on_stage() as play, play.holding("old", SHORT_TTL_MS) as holding:
            await holding.grown()
            leader = stage.pid(await play.leader())
            os.kill(leader, signal.SIGSTOP)
            holding.signal(signal.SIGSTOP)
            await play.take_over("new", "WaitForExclusive")  # which is granted when the session of the other has ended
            os.kill(leader, signal.SIGCONT)
            holding.signal(signal.SIGCONT)
            await holding.ended()
            assert holding.refused
            assert_true(await play.log(), holding.learnt)

    asyncio.run(scenario())


def test_when_all_nodes_sleep_for_longer_than_sessions_live_no_slot_has_two_owners(stage: Stage) -> None:
    async def scenario() -> None:
        async with stage.on_stage() as play, play.holding("old", SHORT_TTL_MS) as holding:
            await holding.grown()
            waiting = asyncio.create_task(play.take_over("new", "WaitForExclusive"))
            nodes = [node.pid for node in stage.local.nodes if node.pid is not None]
            for pid in nodes:
                os.kill(pid, signal.SIGSTOP)
            await passed(3 * SHORT_TTL_MS / 1000)
            for pid in nodes:
                os.kill(pid, signal.SIGCONT)
            await settled(holding, waiting)
            await asyncio.wait_for(waiting, PATIENCE_S)
            assert_true(await play.log(), holding.learnt)

    asyncio.run(scenario())


async def passed(seconds: float) -> None:
    """A stall is long because time passes."""
    end_s = time.monotonic() + seconds

    async def is_over() -> bool:
        return time.monotonic() >= end_s

    await until(is_over, PATIENCE_S, "time does not pass")


async def settled(holding: Holding, waiting: "asyncio.Task[int]") -> None:
    """Either the sleep cost the holder its seat, or it writes on; then it has to die before another one may."""
    before = len(holding.stored)

    async def is_decided() -> bool:
        return waiting.done() or len(holding.stored) > before + 1

    await until(is_decided, PATIENCE_S, "no client writes")
    if not waiting.done() and holding.process.returncode is None:
        holding.process.kill()


def test_while_the_controller_sleeps_and_when_it_wakes_up_every_epoch_is_granted_once(stage: Stage) -> None:
    async def scenario() -> None:
        async with stage.on_stage() as play:
            controller = stage.pid(await play.controller())
            granted: list[int] = []
            over = asyncio.Event()
            async with asyncio.TaskGroup() as contending:
                for number in range(CONTENDERS):
                    contending.create_task(contend(play, f"c{number}", granted, over))
                await reached(granted, CONTENDERS)
                os.kill(controller, signal.SIGSTOP)
                await reached(granted, len(granted) + CONTENDERS)
                os.kill(controller, signal.SIGCONT)
                await reached(granted, len(granted) + CONTENDERS)
                over.set()
            assert len(granted) == len(set(granted))
            await play.log()

    asyncio.run(scenario())


async def contend(play: Play, name: str, granted: list[int], over: asyncio.Event) -> None:
    """Take the slot from its holder, note the epoch, write, and leave; again and again. Others do the same, and may
    throw one out that still waits.
    """
    for number in count():
        if over.is_set():
            return
        identity = await play.client.init_producer()
        async with Session(play.client, f"{name}-{number}", ttl_ms=LONG_TTL_MS) as session:
            with suppress(ProducerFenced):
                token = (await session.acquire(play.topic, [0], mode="ExclusiveWithFencing")).token(0)
                granted.append(token.epoch)
                await write(play.client, play.topic, f"{name}-{number}/0", token, Stamp(identity.producer_id, 0, 0))


async def reached(granted: list[int], count: int) -> None:
    async def is_reached() -> bool:
        return len(granted) >= count

    await until(is_reached, PATIENCE_S, f"there are no {count} grants")


def test_the_report_of_a_holder_is_compared_with_the_log() -> None:
    with pytest.raises(AssertionError):
        assert_certified(7, {"state": "absent"})
    with pytest.raises(AssertionError):
        assert_certified(None, {"state": "committed", "base_offset": 7})
    assert Learnt("old/0", offset=3).code is None
