"""The rules of owned partitions, broken on purpose: each mutant is one rule left out or turned round."""

from typing import Any
from unittest.mock import patch

from msgspec.structs import replace
from simulation.slot_mutants import Mutant

from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.ownership import resources
from stockade.cluster.controller.ownership.reader_fences import PartitionOwners, ReaderFenceInstalls
from stockade.partition.commands import InstallReader, ReaderInstalled
from stockade.partition.state.readers import Reader, Readers


def _nothing(*args: Any, **kwargs: Any) -> None:
    """In place of what must be done."""


def a_close_does_not_wait_for_what_was_given_up() -> Any:
    """The fault that this world found: the session's former partition took a late install, and its writes."""
    return patch.object(ControllerMachine, "_await_lost", _nothing)


def a_claim_does_not_wait_for_the_grants_that_it_ended() -> Any:
    return patch.object(ControllerMachine, "_await_evicted", _nothing)


def an_answer_waits_for_no_partition() -> Any:
    return patch.object(PartitionOwners, "pending", lambda owners, keys: [])


def an_owner_is_not_told_to_its_partition() -> Any:
    return patch.object(PartitionOwners, "owe", _nothing)


def a_report_of_an_older_owner_counts_for_the_last() -> Any:
    installed = ReaderFenceInstalls.installed

    def noting(fences: ReaderFenceInstalls, group_id: int, group: str, fence_epoch: int, *, owned: bool) -> None:
        owed = fences.owed.get(group_id, {}).get(group)
        if owed is not None:
            installed(fences, group_id, group, owed.fence_epoch, owned=owed.owned)

    return patch.object(ReaderFenceInstalls, "installed", noting)


def a_takeover_keeps_the_fence_epoch() -> Any:
    judge = resources.judge

    def judging(row: Any, *args: Any) -> Any:
        wanted = judge(row, *args)
        return replace(wanted, fence_epoch=row.fence_epoch) if row is not None and wanted is not None else wanted

    return patch.object(resources, "judge", judging)


def _installing(is_later: Any) -> Any:
    def install(readers: Readers, command: InstallReader) -> ReaderInstalled:
        known = readers.fences.get(command.group, Reader(0, False))
        if is_later(known, command):
            known = readers.fences[command.group] = Reader(command.fence_epoch, command.owned, command.principal)
        return ReaderInstalled(known.fence_epoch)

    return patch.object(Readers, "install", install)


def a_partition_takes_an_owner_that_comes_late() -> Any:
    return _installing(lambda known, command: True)


def an_owner_that_left_comes_back() -> Any:
    """Of one fence_epoch, the install with an owner is taken behind the one without."""
    return _installing(lambda known, command: command.fence_epoch >= known.fence_epoch)


def a_former_owner_writes() -> Any:
    judge = Readers.judge

    def judging(readers: Readers, group: str, fence_epoch: int | None, principal: str = "") -> Any:
        known = readers.fences.get(group)
        is_former = known is not None and (fence_epoch or 0) < known.fence_epoch
        return None if is_former else judge(readers, group, fence_epoch, principal)

    return patch.object(Readers, "judge", judging)


def a_loaded_controller_forgot_what_owners_are_due() -> Any:
    return patch.object(ReaderFenceInstalls, "load", _nothing)


MUTANTS: list[Mutant] = [
    value for name, value in list(globals().items()) if callable(value) and name.startswith(("a_", "an_"))
]
"""All of the above."""
