"""The protocol broken on purpose: the game of protocol.py must notice every one of these mistakes, in games in which it
notices nothing of the protocol as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from stockade.cluster.controller.commands import FenceRef
from stockade.cluster.controller.ownership import acquire, resources
from stockade.cluster.controller.ownership.acquire import AcquireRules
from stockade.cluster.controller.ownership.grants import EndedGrants, Grant, Grants, Ticket, WaitQueue
from stockade.cluster.controller.ownership.reader_fences import ReaderFence, ReaderFenceInstalls
from stockade.cluster.controller.ownership.resources import Resource, Resources
from stockade.cluster.controller.ownership.slots import FenceInstalls, Slots
from stockade.cluster.controller.topology.catalog import topic_partition
from stockade.partition.commands import InstallReader, InstallSeats, ReaderInstalled
from stockade.partition.errors import StockadeError
from stockade.partition.state.fence import Fence
from stockade.partition.state.readers import Reader, Readers

from ...driver import MODES
from ...protocol import PARTITIONS, PARTITIONS_MAX, RESOURCES, SESSIONS, OperatedProtocol

GAMES = 1000
GAMES_A_TEST = 250
STEPS_A_GAME = 30
Mutant = Callable[[], AbstractContextManager[Any]]


def nothing(*args: Any, **kwargs: Any) -> None:
    """In place of what must be done."""


def wrap(owner: Any, name: str, after: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Let the method do its work, then ``after`` with its answer and arguments, whose answer counts."""
    original = getattr(owner, name)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return after(original(self, *args, **kwargs), self, *args)

    return patch.object(owner, name, wrapped)


def a_partition_installs_whatever_comes() -> AbstractContextManager[Any]:
    return patch.object(Fence, "_is_later", lambda self, command: True)


def a_late_clear_empties_the_slot() -> AbstractContextManager[Any]:
    def clear(self: Fence, command: Any, log_end: int) -> Any:
        self._empty(command.now_ms, command.ends, log_end)
        return original(self, command, log_end)

    original = Fence.clear
    return patch.object(Fence, "clear", clear)


def any_token_of_the_right_epoch_writes() -> AbstractContextManager[Any]:
    def judge(refusal: Any, self: Fence, token: Any, require_fence: bool, principal: str = "") -> Any:
        return None if token is not None and token.epoch == self.topic_epoch else refusal

    return wrap(Fence, "judge", judge)


def older_epochs_write() -> AbstractContextManager[Any]:
    def judge(refusal: Any, self: Fence, token: Any, require_fence: bool, principal: str = "") -> Any:
        return None if token is not None and token.epoch < self.topic_epoch else refusal

    return wrap(Fence, "judge", judge)


def seats_that_left_stay() -> AbstractContextManager[Any]:
    def share(self: Fence, command: InstallSeats, log_end: int) -> Any:
        before = dict(self.sharing)
        answer = original(self, command, log_end)
        self.sharing |= before
        return answer

    original = Fence.share
    return patch.object(Fence, "share", share)


def in_force_is_said_at_once() -> AbstractContextManager[Any]:
    return wrap(Slots, "_hold", lambda _, self, grant, *args: grant.pending.clear())


def any_report_counts() -> AbstractContextManager[Any]:
    def confirmed(self: FenceInstalls, group: int, order: int) -> None:
        place = self.due.get(group)
        original(self, group, place.order if place is not None else order)

    original = FenceInstalls.confirmed
    return patch.object(FenceInstalls, "confirmed", confirmed)


def an_older_report_ends_later_work() -> AbstractContextManager[Any]:
    def confirmed(is_news: bool, self: FenceInstalls, group: int, order: int) -> bool:
        reached = self._reached.get(group, 0)
        self.forget([group])
        self._reached[group] = reached
        return is_news

    return wrap(FenceInstalls, "confirmed", confirmed)


def an_older_report_puts_a_later_grant_in_force() -> AbstractContextManager[Any]:
    def confirmed(is_news: bool, self: FenceInstalls, group: int, order: int) -> bool:
        for grant in self._grants.on(group):
            grant.pending.discard(topic_partition(group)[1])
        return is_news

    return wrap(FenceInstalls, "confirmed", confirmed)


def nothing_is_cleared() -> AbstractContextManager[Any]:
    return patch.object(FenceInstalls, "record_end", nothing)


def an_end_has_no_place_of_its_own() -> AbstractContextManager[Any]:
    original = FenceInstalls.record_end

    def record_end(self: FenceInstalls, grant: Grant, group: int, epoch: int, order: int, *rest: Any) -> None:
        original(self, grant, group, epoch, grant.grant_index, *rest)

    return patch.object(FenceInstalls, "record_end", record_end)


def a_resumed_grant_has_the_place_of_its_predecessor() -> AbstractContextManager[Any]:
    def next_order(order: int, self: FenceInstalls) -> int:
        return order // 2 + 1

    return wrap(FenceInstalls, "next_order", next_order)


def a_fence_on_purpose_reaches_no_partition() -> AbstractContextManager[Any]:
    return patch.object(FenceInstalls, "record_fence", nothing)


def nothing_is_checked_of_a_resumed_epoch() -> AbstractContextManager[Any]:
    return patch.object(acquire, "check_resume", nothing)


def a_stale_resume_is_found_after_the_eviction() -> AbstractContextManager[Any]:
    @contextmanager
    def mutant() -> Iterator[None]:
        check, evict = acquire.check_resume, AcquireRules._evict

        def late(self: AcquireRules, asked: Ticket, scene: Any) -> Any:
            given = evict(self, replace(asked, resume_epoch=None), scene)
            check(scene.topic, asked.partitions, asked.resume_epoch)
            return given

        with patch.object(acquire, "check_resume", nothing), patch.object(AcquireRules, "_evict", late):
            yield

    return mutant()


def a_waiters_old_epoch_is_stored() -> AbstractContextManager[Any]:
    return patch.object(Slots, "_epoch", lambda self, found: 0)


def leaving_seats_promote_nobody() -> AbstractContextManager[Any]:
    def end(_: None, self: Slots, grant: Grant, *args: Any) -> None:
        if grant.is_shared:
            self._freed.clear()

    return wrap(Slots, "end", end)


def the_dead_stay_in_line() -> AbstractContextManager[Any]:
    original = Slots.end_session

    def end_session(self: Slots, session: str, ends: str, level: int) -> list[FenceRef]:
        ticket = self.queue.by_session.get(session)
        passed = original(self, session, ends, level)
        if ticket is not None:
            self.queue.add(ticket)
        return passed

    return patch.object(Slots, "end_session", end_session)


def the_line_is_passed_by() -> AbstractContextManager[Any]:
    return wrap(AcquireRules, "_look", lambda scene, *args: replace(scene, tickets=[]))


def who_holds_may_wait() -> AbstractContextManager[Any]:
    def wait(self: AcquireRules, asked: Ticket) -> Ticket:
        self._slots.queue.add(asked)
        return asked

    return patch.object(AcquireRules, "_wait", wait)


def the_line_is_served_from_its_end() -> AbstractContextManager[Any]:
    return wrap(WaitQueue, "of_topic", lambda tickets, self, topic_id: tickets[::-1])


def a_seat_stays_beside_the_exclusive_grant() -> AbstractContextManager[Any]:
    return patch.object(AcquireRules, "_upgrade", nothing)


def each_partition_counts_its_own_epochs() -> AbstractContextManager[Any]:
    def hold(self: Slots, grant: Grant, topic: Any, partition: int, order: int) -> None:
        topic.epochs[partition] += grant.epoch is not None
        grant.pending.add(partition)
        self.fences.record_grant(grant.groups()[grant.partitions.index(partition)], topic.epochs[partition], order, 0)

    return patch.object(Slots, "_hold", hold)


def whole_grants_do_not_grow() -> AbstractContextManager[Any]:
    return patch.object(Grants, "of_whole_topic", lambda self, topic_id: [])


def whole_tickets_do_not_grow() -> AbstractContextManager[Any]:
    return patch.object(WaitQueue, "grow", nothing)


def an_equal_generation_takes_over_without_a_new_one() -> AbstractContextManager[Any]:
    def judge(row: Resource | None, session: str, requested: int | None, floor: int) -> Resource | None:
        wanted = original(row, session, requested, floor)
        equal = row is not None and row.owner is not None and requested == row.generation
        return replace(wanted, generation=requested) if wanted is not None and equal else wanted

    original = resources.judge
    return patch.object(resources, "judge", judge)


def generation_zero_resets_the_fence_epoch() -> AbstractContextManager[Any]:
    def judge(row: Resource | None, session: str, requested: int | None, floor: int) -> Resource | None:
        wanted = original(row, session, requested, floor)
        return replace(wanted, fence_epoch=1) if wanted is not None and requested == 0 else wanted

    original = resources.judge
    return patch.object(resources, "judge", judge)


def the_severed_keep_their_grants() -> AbstractContextManager[Any]:
    return patch.object(Slots, "empty", nothing)


def the_departed_keep_what_they_own() -> AbstractContextManager[Any]:
    return patch.object(Resources, "end_session", lambda self, session: [])


def partitions_do_not_learn_that_an_owner_left() -> AbstractContextManager[Any]:
    original = ReaderFenceInstalls.owe

    def owe(self: ReaderFenceInstalls, group_id: int, group: str, fence: ReaderFence) -> None:
        if fence.owned:
            original(self, group_id, group, fence)

    return patch.object(ReaderFenceInstalls, "owe", owe)


def a_late_owner_is_let_in() -> AbstractContextManager[Any]:
    def install(self: Readers, command: InstallReader) -> ReaderInstalled:
        self.fences[command.group] = Reader(command.fence_epoch, command.owned)
        return ReaderInstalled(command.fence_epoch)

    return patch.object(Readers, "install", install)


def any_report_of_a_reader_counts() -> AbstractContextManager[Any]:
    def installed(self: ReaderFenceInstalls, group_id: int, group: str, fence_epoch: int, *, owned: bool) -> None:
        self.owed.pop(group_id, None)

    return patch.object(ReaderFenceInstalls, "installed", installed)


def a_restored_controller_forgot_what_is_due() -> AbstractContextManager[Any]:
    return wrap(FenceInstalls, "load", lambda _, self, saved: self.due.clear())


def a_restored_controller_forgot_why_things_ended() -> AbstractContextManager[Any]:
    return patch.object(EndedGrants, "load", nothing)


MUTANTS: list[Mutant] = [
    a_partition_installs_whatever_comes,
    a_late_clear_empties_the_slot,
    any_token_of_the_right_epoch_writes,
    older_epochs_write,
    in_force_is_said_at_once,
    any_report_counts,
    nothing_is_cleared,
    an_end_has_no_place_of_its_own,
    a_resumed_grant_has_the_place_of_its_predecessor,
    a_fence_on_purpose_reaches_no_partition,
    nothing_is_checked_of_a_resumed_epoch,
    a_stale_resume_is_found_after_the_eviction,
    a_waiters_old_epoch_is_stored,
    the_dead_stay_in_line,
    the_line_is_served_from_its_end,
    each_partition_counts_its_own_epochs,
    whole_grants_do_not_grow,
    an_equal_generation_takes_over_without_a_new_one,
    generation_zero_resets_the_fence_epoch,
    the_severed_keep_their_grants,
    the_departed_keep_what_they_own,
    partitions_do_not_learn_that_an_owner_left,
    a_late_owner_is_let_in,
    any_report_of_a_reader_counts,
    a_restored_controller_forgot_what_is_due,
    a_restored_controller_forgot_why_things_ended,
]


Way = Callable[[OperatedProtocol], None]

WAYS: list[tuple[Mutant, list[Way]]] = [
    (
        an_older_report_ends_later_work,
        [
            lambda it: it.acquire("a", "p", {0}, "Exclusive", None),
            lambda it: it.send(0),
            lambda it: it.deliver(0, repeated=False, answer_lost=False),
            lambda it: it.release(0),
            lambda it: it.report(0, repeated=False),
        ],
    ),
    (
        an_older_report_puts_a_later_grant_in_force,
        [
            lambda it: it.acquire("a", "p", {0}, "Exclusive", None),
            lambda it: it.send(0),
            lambda it: it.deliver(0, repeated=False, answer_lost=False),
            lambda it: it.acquire("b", "q", {0}, "ExclusiveWithFencing", None),
            lambda it: it.report(0, repeated=False),
        ],
    ),
    (
        seats_that_left_stay,
        [
            lambda it: it.acquire("a", "p", {0}, "Shared", None),
            lambda it: it.acquire("b", "q", {0}, "Shared", None),
            lambda it: it.calm(),
            lambda it: it.release(0),
            lambda it: it.calm(),
        ],
    ),
    (
        leaving_seats_promote_nobody,
        [
            lambda it: it.acquire("a", "p", {0}, "Shared", None),
            lambda it: it.acquire("b", "q", {0}, "WaitForExclusive", None),
            lambda it: it.release(0),
        ],
    ),
    (
        the_line_is_passed_by,
        [
            lambda it: it.acquire("a", "p", {0}, "Exclusive", None),
            lambda it: it.acquire("b", "q", {0, 1}, "WaitForExclusive", None),
            lambda it: it.acquire("c", "p", {1}, "Exclusive", None),
        ],
    ),
    (
        who_holds_may_wait,
        [
            lambda it: it.acquire("a", "p", {0}, "Exclusive", None),
            lambda it: it.acquire("b", "q", {1}, "Exclusive", None),
            lambda it: it.acquire("a", "p", {1}, "WaitForExclusive", None),
        ],
    ),
    (
        a_seat_stays_beside_the_exclusive_grant,
        [
            lambda it: it.acquire("a", "p", {0}, "Shared", None),
            lambda it: it.acquire("a", "p", {0}, "Exclusive", None),
        ],
    ),
    (
        whole_tickets_do_not_grow,
        [
            lambda it: it.acquire("a", "p", {0}, "Exclusive", None),
            lambda it: it.acquire("b", "q", None, "WaitForExclusive", None),
            lambda it: it.grow(),
        ],
    ),
]
"""Mutants that a random schedule meets rarely, each with the steps that show it."""


def go(way: list[Way]) -> None:
    """Take these steps, with every invariant after each, and settle."""
    protocol = OperatedProtocol()
    for step in way:
        step(protocol)
        protocol.the_controller_is_what_the_reference_says()
        protocol.places_never_go_down()
        protocol.what_was_promised_dead_is_dead()
        protocol.whoever_shares_and_is_in_force_writes()
        protocol.an_older_owner_reads_no_more_once_the_new_one_was_told()
    protocol.teardown()


@pytest.mark.parametrize(("mutant", "way"), WAYS, ids=lambda it: getattr(it, "__name__", ""))
def test_a_broken_protocol_is_noticed_on_the_way_that_shows_it(mutant: Mutant, way: list[Way]) -> None:
    go(way)
    with mutant(), pytest.raises((AssertionError, StockadeError)):
        go(way)


def places(by: Random) -> set[int] | None:
    return by.choice([None, {0}, {1}, {0, 1}])


def flip(by: Random) -> bool:
    return by.random() < 0.5


def take(by: Random, it: OperatedProtocol) -> None:
    mode = by.choice([*MODES, "Shared", "WaitForExclusive", "WaitForExclusive"])
    it.acquire(by.choice(SESSIONS), by.choice("pq"), places(by), mode, by.choice([None, None, None, 0, 1, 2]))


def grow(by: Random, it: OperatedProtocol) -> None:
    if len(it.reference.epochs) < PARTITIONS_MAX:
        it.grow()


Rule = Callable[[Random, OperatedProtocol], None]
OFTEN: list[Rule] = [
    take,
    lambda by, it: it.send(by.randrange(99)),
    lambda by, it: it.deliver(by.randrange(99), repeated=flip(by), answer_lost=flip(by)),
    lambda by, it: it.report(by.randrange(99), repeated=flip(by)),
]
RULES: list[Rule] = [
    *OFTEN,
    *OFTEN,
    grow,
    lambda by, it: it.elect(restored=flip(by)),
    lambda by, it: it.release(by.randrange(99)),
    lambda by, it: it.close(by.choice(SESSIONS)),
    lambda by, it: it.cancel(by.choice(SESSIONS)),
    lambda by, it: it.expire_the_others(by.choice(SESSIONS)),
    lambda by, it: it.fence(places(by)),
    lambda by, it: it.fence_session(by.choice(SESSIONS)),
    lambda by, it: it.calm(),
    lambda by, it: it.own(by.choice(SESSIONS), by.choice(RESOURCES), by.choice([None, -1, 0, 1, "reset"])),
    lambda by, it: it.disown(by.choice(SESSIONS), by.choice(RESOURCES)),
    lambda by, it: it.append(by.randrange(99), by.randrange(PARTITIONS)),
]
"""Of the game, those that most of its ways need twice as often."""


def play(seed: int) -> None:
    """A game of some of the rules: with few of them it goes where one with all of them hardly comes."""
    by = Random(seed)
    rules = by.sample(RULES, by.randint(4, len(RULES)))
    try:
        go([partial(by.choice(rules), by) for _ in range(STEPS_A_GAME)])
    except BaseException as error:
        error.add_note(f"in game {seed}")
        raise


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_protocol_is_noticed(mutant: Mutant) -> None:
    with mutant(), pytest.raises((AssertionError, StockadeError)):
        for seed in range(GAMES):
            play(seed)


@pytest.mark.parametrize("first", range(0, GAMES, GAMES_A_TEST))
def test_the_protocol_as_it_is_passes_the_same_games(first: int) -> None:
    for seed in range(first, first + GAMES_A_TEST):
        play(seed)
