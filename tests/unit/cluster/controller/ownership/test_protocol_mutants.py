"""The protocol broken on purpose: the game of protocol.py must notice every one of these mistakes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from stockade.cluster import acquiring, resources
from stockade.cluster.acquiring import Acquiring
from stockade.cluster.endings import Endings
from stockade.cluster.fences import Fences
from stockade.cluster.grants import Grant, Grants
from stockade.cluster.ownership import Ownership
from stockade.cluster.queue import Queue, Ticket
from stockade.cluster.reader_fences import ReaderFences
from stockade.cluster.resources import Resource, Resources
from stockade.partition.commands import InstallReader, ReaderInstalled
from stockade.partition.errors import StockadeError
from stockade.partition.fence import Fence
from stockade.partition.readers import Reader, Readers
from stockade.partition.slots import InstallSeats

from .protocol import Protocol

LOOK = settings(
    max_examples=4000,
    stateful_step_count=50,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
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
    def clear(self: Fence, command: Any) -> Any:
        self._empty(command.now_ms, command.ends)
        return original(self, command)

    original = Fence.clear
    return patch.object(Fence, "clear", clear)


def any_token_of_the_right_epoch_writes() -> AbstractContextManager[Any]:
    def judge(refusal: Any, self: Fence, token: Any, require_fence: bool) -> Any:
        return None if token is not None and token.epoch == self.topic_epoch else refusal

    return wrap(Fence, "judge", judge)


def older_epochs_write() -> AbstractContextManager[Any]:
    def judge(refusal: Any, self: Fence, token: Any, require_fence: bool) -> Any:
        return None if token is not None and token.epoch < self.topic_epoch else refusal

    return wrap(Fence, "judge", judge)


def seats_that_left_stay() -> AbstractContextManager[Any]:
    def share(self: Fence, command: InstallSeats) -> Any:
        before = dict(self.seats)
        answer = original(self, command)
        self.seats |= before
        return answer

    original = Fence.share
    return patch.object(Fence, "share", share)


def in_force_is_said_at_once() -> AbstractContextManager[Any]:
    return wrap(Fences, "seat", lambda _, self, grant, *args: grant.pending.clear())


def any_report_counts() -> AbstractContextManager[Any]:
    def confirmed(self: Fences, group: int, order: int) -> None:
        place = self.due.get(group)
        original(self, group, place.order if place is not None else order)

    original = Fences.confirmed
    return patch.object(Fences, "confirmed", confirmed)


def nothing_is_cleared() -> AbstractContextManager[Any]:
    return patch.object(Fences, "unseat", nothing)


def an_end_has_no_place_of_its_own() -> AbstractContextManager[Any]:
    original = Fences.unseat

    def unseat(self: Fences, grant: Grant, group: int, epoch: int, order: int, *rest: Any) -> None:
        original(self, grant, group, epoch, grant.grant_index, *rest)

    return patch.object(Fences, "unseat", unseat)


def a_resumed_grant_has_the_place_of_its_predecessor() -> AbstractContextManager[Any]:
    def next_order(order: int, self: Fences) -> int:
        return order // 2 + 1

    return wrap(Fences, "next_order", next_order)


def a_fence_on_purpose_reaches_no_partition() -> AbstractContextManager[Any]:
    return patch.object(Fences, "bar", nothing)


def nothing_is_checked_of_a_resumed_epoch() -> AbstractContextManager[Any]:
    return patch.object(acquiring, "check_resume", nothing)


def a_stale_resume_is_found_after_the_eviction() -> AbstractContextManager[Any]:
    @contextmanager
    def mutant() -> Iterator[None]:
        check, throw_out = acquiring.check_resume, Acquiring._throw_out

        def late(self: Acquiring, asked: Ticket, scene: Any) -> Any:
            given = throw_out(self, replace(asked, resume_epoch=None), scene)
            check(scene.topic, asked.partitions, asked.resume_epoch)
            return given

        with patch.object(acquiring, "check_resume", nothing), patch.object(Acquiring, "_throw_out", late):
            yield

    return mutant()


def a_waiters_old_epoch_is_stored() -> AbstractContextManager[Any]:
    return patch.object(Ownership, "_epoch", lambda self, found: 0)


def leaving_seats_promote_nobody() -> AbstractContextManager[Any]:
    def end(_: None, self: Ownership, grant: Grant, *args: Any) -> None:
        if grant.is_shared:
            self._left.clear()

    return wrap(Ownership, "end", end)


def the_dead_stay_in_line() -> AbstractContextManager[Any]:
    original = Ownership.end_session

    def end_session(self: Ownership, session: str, ends: str) -> None:
        ticket = self.queue.of_session(session)
        original(self, session, ends)
        if ticket is not None:
            self.queue.add(ticket)

    return patch.object(Ownership, "end_session", end_session)


def the_line_is_passed_by() -> AbstractContextManager[Any]:
    return wrap(Acquiring, "_look", lambda scene, *args: replace(scene, tickets=[]))


def who_holds_may_wait() -> AbstractContextManager[Any]:
    def wait(self: Acquiring, asked: Ticket) -> Ticket:
        self._ownership.queue.add(asked)
        return asked

    return patch.object(Acquiring, "_wait", wait)


def the_line_is_served_from_its_end() -> AbstractContextManager[Any]:
    return wrap(Queue, "of_topic", lambda tickets, self, topic_id: tickets[::-1])


def a_seat_stays_beside_the_exclusive_grant() -> AbstractContextManager[Any]:
    return patch.object(Acquiring, "_upgrade", nothing)


def each_partition_counts_its_own_epochs() -> AbstractContextManager[Any]:
    def seat(self: Ownership, grant: Grant, topic: Any, partition: int, order: int) -> None:
        topic.epochs[partition] += grant.epoch is not None
        self.fences.seat(grant, grant.groups()[grant.partitions.index(partition)], topic.epochs[partition], order, 0)

    return patch.object(Ownership, "_seat", seat)


def whole_grants_do_not_grow() -> AbstractContextManager[Any]:
    return patch.object(Grants, "of_whole_topic", lambda self, topic_id: [])


def whole_tickets_do_not_grow() -> AbstractContextManager[Any]:
    return patch.object(Queue, "grow", nothing)


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
    return patch.object(Ownership, "empty", nothing)


def the_departed_keep_what_they_own() -> AbstractContextManager[Any]:
    return patch.object(Resources, "end_session", lambda self, session: [])


def partitions_do_not_learn_that_an_owner_left() -> AbstractContextManager[Any]:
    original = ReaderFences.owe

    def owe(self: ReaderFences, group_id: int, group: str, fence_epoch: int, *, owned: bool) -> None:
        if owned:
            original(self, group_id, group, fence_epoch, owned=owned)

    return patch.object(ReaderFences, "owe", owe)


def a_late_owner_is_let_in() -> AbstractContextManager[Any]:
    def install(self: Readers, command: InstallReader) -> ReaderInstalled:
        self.fences[command.group] = Reader(command.fence_epoch, command.owned)
        return ReaderInstalled(command.fence_epoch)

    return patch.object(Readers, "install", install)


def any_report_of_a_reader_counts() -> AbstractContextManager[Any]:
    def installed(self: ReaderFences, group_id: int, group: str, fence_epoch: int, *, owned: bool) -> None:
        self.owed.pop(group_id, None)

    return patch.object(ReaderFences, "installed", installed)


def a_restored_controller_forgot_what_is_due() -> AbstractContextManager[Any]:
    return wrap(Fences, "load", lambda _, self, saved: self.due.clear())


def a_restored_controller_forgot_why_things_ended() -> AbstractContextManager[Any]:
    return patch.object(Endings, "load", nothing)


MUTANTS: list[Mutant] = [
    a_partition_installs_whatever_comes,
    a_late_clear_empties_the_slot,
    any_token_of_the_right_epoch_writes,
    older_epochs_write,
    seats_that_left_stay,
    in_force_is_said_at_once,
    any_report_counts,
    nothing_is_cleared,
    an_end_has_no_place_of_its_own,
    a_resumed_grant_has_the_place_of_its_predecessor,
    a_fence_on_purpose_reaches_no_partition,
    nothing_is_checked_of_a_resumed_epoch,
    a_stale_resume_is_found_after_the_eviction,
    a_waiters_old_epoch_is_stored,
    leaving_seats_promote_nobody,
    the_dead_stay_in_line,
    the_line_is_passed_by,
    who_holds_may_wait,
    the_line_is_served_from_its_end,
    a_seat_stays_beside_the_exclusive_grant,
    each_partition_counts_its_own_epochs,
    whole_grants_do_not_grow,
    whole_tickets_do_not_grow,
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


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_protocol_is_noticed(mutant: Mutant) -> None:
    with mutant(), pytest.raises((AssertionError, StockadeError)):
        run_state_machine_as_test(Protocol, settings=LOOK)


def test_the_protocol_as_it_is_passes_the_same_look() -> None:
    run_state_machine_as_test(Protocol, settings=settings(LOOK, max_examples=50))
