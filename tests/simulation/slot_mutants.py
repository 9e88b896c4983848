"""The machines that decide who may write, broken on purpose: each mutant is one rule left out or turned round."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.ownership import acquire
from stockade.cluster.controller.ownership.acquire import AcquireRules
from stockade.cluster.controller.ownership.grants import Grant, Grants, WaitQueue
from stockade.cluster.controller.ownership.slots import FenceInstalls, Slots
from stockade.cluster.controller.sessions import Sessions
from stockade.cluster.controller.topology.catalog import Topic, topic_partition
from stockade.partition.commands import Append, ClearFence
from stockade.partition.errors import OutOfOrderSequence
from stockade.partition.state import producers
from stockade.partition.state.fence import Fence
from stockade.partition.state.machine import PartitionMachine

Mutant = Callable[[], AbstractContextManager[Any]]


def _nothing(*args: Any, **kwargs: Any) -> None:
    """In place of what must be done."""


def a_partition_installs_what_comes_late() -> Any:
    return patch.object(Fence, "_is_later", lambda fence, command: True)


def an_equal_epoch_is_later() -> Any:
    """A late install of the same epoch takes the slot: the number of the decision is not compared."""
    return patch.object(Fence, "_is_later", lambda fence, command: command.epoch >= fence.topic_epoch)


def a_late_clear_empties_the_slot() -> Any:
    clear = Fence.clear

    def clearing(fence: Fence, command: ClearFence, log_end: int | None = None) -> Any:
        fence._empty(command.now_ms, command.ends, log_end)
        return clear(fence, command, log_end)

    return patch.object(Fence, "clear", clearing)


def a_clear_leaves_its_place_open() -> Any:
    """A clear empties the slot and does not raise the partition's place, so that an older install comes after it."""

    def clearing(fence: Fence, command: ClearFence, log_end: int | None = None) -> Any:
        if (command.epoch, command.grant_index) >= (fence.topic_epoch, fence.grant_index):
            fence._empty(command.now_ms, command.ends, log_end)
        return fence._state(done=True)

    return patch.object(Fence, "clear", clearing)


def _judging(otherwise: Callable[[Fence, Any], bool]) -> Any:
    judge = Fence.judge

    def judging(fence: Fence, token: Any, require_fence: bool, principal: str = "") -> Any:
        return None if otherwise(fence, token) else judge(fence, token, require_fence, principal)

    return patch.object(Fence, "judge", judging)


def an_older_epoch_writes() -> Any:
    return _judging(lambda fence, token: token is not None and token.epoch < fence.topic_epoch)


def a_token_of_the_right_epoch_writes() -> Any:
    """The grant is not compared: a holder whose epoch was resumed by another one, or was released, writes on."""
    return _judging(lambda fence, token: token is not None and token.epoch == fence.topic_epoch)


def a_write_without_a_token_is_not_fenced() -> Any:
    return _judging(lambda fence, token: token is None)


def a_duplicate_is_answered_before_the_token_is_judged() -> Any:
    """A fenced writer hears that its batch is a duplicate: nothing is stored, but it does not learn of its end."""
    judge = PartitionMachine._judge_writer

    def judging(machine: PartitionMachine, command: Any, count: int) -> Any:
        stamp = command.stamp if isinstance(command, Append) else None
        if stamp is not None:
            verdict = machine.producers.judge(command, stamp, machine.config, machine.log)
            if isinstance(verdict, producers.Repeated):
                return None
        return judge(machine, command, count)

    return patch.object(PartitionMachine, "_judge_writer", judging)


def a_batch_is_stored_again() -> Any:
    """The sequence number of a batch that was stored is not recognised."""
    judge = producers.Producers.judge

    def judging(table: producers.Producers, *args: Any) -> Any:
        verdict = judge(table, *args)
        return None if isinstance(verdict, producers.Repeated) else verdict

    return patch.object(producers.Producers, "judge", judging)


def a_gap_is_stored() -> Any:
    judge = producers.Producers.judge

    def judging(table: producers.Producers, *args: Any) -> Any:
        verdict = judge(table, *args)
        return None if isinstance(verdict, OutOfOrderSequence) else verdict

    return patch.object(producers.Producers, "judge", judging)


def a_duplicate_gets_the_end_of_the_log() -> Any:
    judge = producers.Producers.judge

    def judging(table: producers.Producers, command: Any, stamp: Any, config: Any, log: Any) -> Any:
        verdict = judge(table, command, stamp, config, log)
        if isinstance(verdict, producers.Repeated) and verdict.batch is not None:
            return producers.Repeated(replace(verdict.batch, base_offset=log.log_end - 1))
        return verdict

    return patch.object(producers.Producers, "judge", judging)


def a_certificate_denies_what_was_stored() -> Any:
    return patch.object(producers.Producers, "outcome", lambda *args: producers.Outcome("absent").fields())


def a_refused_write_counts_as_one() -> Any:
    """A write that is refused for its token uses up its sequence number."""
    judge = PartitionMachine._judge_writer

    def judging(machine: PartitionMachine, command: Any, count: int) -> Any:
        refusal = judge(machine, command, count)
        if refusal is not None and machine.producers.judge(command, command.stamp, machine.config, machine.log) is None:
            machine.producers.store(command.stamp, command, machine.log_end, 0, 0)
        return refusal

    return patch.object(PartitionMachine, "_judge_writer", judging)


def an_expired_session_keeps_its_grants() -> Any:
    return patch.object(ControllerMachine, "_end_session", _nothing)


def a_dead_waiter_stays_in_line() -> Any:
    def empty(slots: Slots, session: str, reason: str, ends: str) -> None:
        for grant in slots.grants.of_session(session):
            slots.end(grant, reason, ends)

    return patch.object(Slots, "empty", empty)


def a_cancelled_ticket_promotes_no_other() -> Any:
    leave = Slots.leave

    def leaving(slots: Slots, ticket: Any, reason: str) -> None:
        freed = dict(slots._freed)
        leave(slots, ticket, reason)
        slots._freed = freed

    return patch.object(Slots, "leave", leaving)


def a_shared_grant_that_ends_promotes_no_waiter() -> Any:
    end = Slots.end

    def ending(slots: Slots, grant: Grant, *args: Any) -> None:
        freed = dict(slots._freed)
        end(slots, grant, *args)
        if grant.is_shared:
            slots._freed = freed

    return patch.object(Slots, "end", ending)


def a_waiter_is_lost_with_the_grant_before_it() -> Any:
    """What is left of the queue goes when its first ticket is served."""
    remove = WaitQueue.remove

    def removing(queue: WaitQueue, ticket: Any) -> None:
        remove(queue, ticket)
        for other in queue.of_topic(ticket.topic_id):
            remove(queue, other)

    return patch.object(WaitQueue, "remove", removing)


def an_end_is_not_told_to_partitions() -> Any:
    return patch.object(FenceInstalls, "record_end", _nothing)


def an_end_has_no_place_of_its_own() -> Any:
    record = FenceInstalls.record_end

    def recording(fences: FenceInstalls, grant: Grant, group: int, epoch: int, order: int, *rest: Any) -> None:
        record(fences, grant, group, epoch, grant.grant_index, *rest)

    return patch.object(FenceInstalls, "record_end", recording)


def an_operators_fence_is_not_told_to_partitions() -> Any:
    return patch.object(FenceInstalls, "record_fence", _nothing)


def a_grant_is_in_force_at_once() -> Any:
    hold = Slots._hold

    def holding(slots: Slots, grant: Grant, *args: Any) -> None:
        hold(slots, grant, *args)
        grant.pending.clear()

    return patch.object(Slots, "_hold", holding)


def a_report_of_an_older_decision_counts_for_the_last() -> Any:
    confirmed = FenceInstalls.confirmed

    def confirming(fences: FenceInstalls, group: int, order: int) -> bool:
        decision = fences.due.get(group)
        return confirmed(fences, group, decision.order if decision is not None else order)

    return patch.object(FenceInstalls, "confirmed", confirming)


def a_report_puts_a_later_grant_in_force() -> Any:
    confirmed = FenceInstalls.confirmed

    def confirming(fences: FenceInstalls, group: int, order: int) -> bool:
        is_news = confirmed(fences, group, order)
        for grant in fences._grants.on(group):
            grant.pending.discard(topic_partition(group)[1])
        return is_news

    return patch.object(FenceInstalls, "confirmed", confirming)


def a_resumed_epoch_is_not_checked() -> Any:
    return patch.object(acquire, "check_resume", _nothing)


def a_waiter_keeps_an_older_epoch() -> Any:
    """The epoch that a waiter resumes is not compared again when its turn comes."""
    return patch.object(Slots, "_epoch", lambda slots, found: 0)


def an_acquire_passes_the_line() -> Any:
    look = AcquireRules._look

    def looking(rules: AcquireRules, *args: Any) -> Any:
        return replace(look(rules, *args), tickets=[])

    return patch.object(AcquireRules, "_look", looking)


def an_eviction_spares_the_sharers() -> Any:
    evict = AcquireRules._evict

    def evicting(rules: AcquireRules, request: Any, conflicts: Any) -> Grant:
        return evict(rules, request, replace(conflicts, sharers=[]))

    return patch.object(AcquireRules, "_evict", evicting)


def a_session_holds_while_it_waits() -> Any:
    def waiting(rules: AcquireRules, request: Any) -> Any:
        rules._slots.queue.add(request)
        return request

    return patch.object(AcquireRules, "_wait", waiting)


def a_loaded_controller_forgot_what_is_due() -> Any:
    load = FenceInstalls.load

    def loading(fences: FenceInstalls, saved: Any) -> None:
        load(fences, replace(saved, due=[]))

    return patch.object(FenceInstalls, "load", loading)


def a_loaded_controller_counts_decisions_anew() -> Any:
    load = FenceInstalls.load

    def loading(fences: FenceInstalls, saved: Any) -> None:
        load(fences, replace(saved, order=0))

    return patch.object(FenceInstalls, "load", loading)


def a_holder_of_all_does_not_get_what_is_added() -> Any:
    return patch.object(Grants, "of_whole_topic", lambda grants, topic_id: [])


def a_holder_of_all_has_what_is_added_at_once() -> Any:
    """The grant is in force on a partition that was added, before the partition knows of it."""
    grow = Slots.grow

    def growing(slots: Slots, topic: Topic, partitions: list[int]) -> None:
        grow(slots, topic, partitions)
        for grant in slots.grants.of_whole_topic(topic.topic_id):
            grant.pending.difference_update(partitions)

    return patch.object(Slots, "grow", growing)


def an_added_partition_has_the_place_of_the_grant() -> Any:
    """It is told of the grant as of a decision at whose place it is already: a new partition's."""
    grow = Slots.grow

    def growing(slots: Slots, topic: Topic, partitions: list[int]) -> None:
        with patch.object(slots.fences, "next_order", lambda: 0):
            grow(slots, topic, partitions)

    return patch.object(Slots, "grow", growing)


def a_waiter_for_all_does_not_wait_for_what_is_added() -> Any:
    return patch.object(WaitQueue, "grow", _nothing)


def a_new_leader_ends_sessions() -> Any:
    return patch.object(Sessions, "rearm", _nothing)


MUTANTS: list[Mutant] = [
    value for name, value in list(globals().items()) if callable(value) and name.startswith(("a_", "an_"))
]
"""All of the above."""
