"""The rules of producers' names, broken on purpose: each mutant is one rule left out or turned round."""

from typing import Any
from unittest.mock import patch

from msgspec.structs import replace
from simulation.slot_mutants import Mutant

from stockade.cluster.controller.commands import WithdrawProducers
from stockade.cluster.controller.producers import Enrolments, ProducerRegistry
from stockade.partition.commands import ForgetProducers, InstallProducer, ProducersForgotten
from stockade.partition.state import producers
from stockade.partition.state.producers import Producers

INDEX_MAX = 1 << 40


def _nothing(*args: Any, **kwargs: Any) -> None:
    """In place of what must be done."""


def a_takeover_keeps_the_pair() -> Any:
    return patch.object(ProducerRegistry, "_set_epoch", _nothing)


def an_epoch_is_not_told_to_partitions() -> Any:
    return patch.object(Enrolments, "raise_epoch", _nothing)


def an_answer_waits_for_no_partition() -> Any:
    return patch.object(Enrolments, "pending", lambda enrolments, pids: [])


def an_enrolment_is_not_remembered() -> Any:
    return patch.object(Enrolments, "enrol", _nothing)


def a_loaded_controller_forgot_enrolments() -> Any:
    return patch.object(Enrolments, "load", _nothing)


def a_report_of_an_older_epoch_counts_for_the_last() -> Any:
    installed = Enrolments.installed

    def noting(enrolments: Enrolments, pid: int, epoch: int, group: int) -> None:
        installed(enrolments, pid, enrolments.owed.get(group, {}).get(pid, epoch), group)

    return patch.object(Enrolments, "installed", noting)


def a_late_install_lowers_an_epoch() -> Any:
    install = Producers.install

    def installing(table: Producers, command: InstallProducer, *args: Any) -> int:
        entry = table.entries.get(command.pid)
        if entry is not None and command.epoch < entry.run.epoch:
            entry.begin_epoch(command.epoch)
        return install(table, command, *args)

    return patch.object(Producers, "install", installing)


def a_former_instance_writes() -> Any:
    judge = producers.judge

    def judging(entry: Any, stamp: Any, *args: Any) -> Any:
        return None if stamp.epoch < entry.run.epoch else judge(entry, stamp, *args)

    return patch.object(producers, "judge", judging)


def a_forgotten_producer_is_installed_late() -> Any:
    """A partition that says that it does not know a producer takes installs that were decided before, all the same."""

    def forget(table: Producers, command: ForgetProducers) -> ProducersForgotten:
        return ProducersForgotten([pid for pid in command.pids if pid not in table.entries])

    return patch.object(Producers, "forget", forget)


def an_enrolment_since_the_question_is_withdrawn() -> Any:
    withdraw = Enrolments.withdraw

    def withdrawing(enrolments: Enrolments, command: WithdrawProducers) -> Any:
        return withdraw(enrolments, replace(command, order=INDEX_MAX))

    return patch.object(Enrolments, "withdraw", withdrawing)


def a_name_is_forgotten_that_a_partition_knows() -> Any:
    return patch.object(Enrolments, "is_anywhere", lambda enrolments, pids: False)


MUTANTS: list[Mutant] = [
    value for name, value in list(globals().items()) if callable(value) and name.startswith(("a_", "an_"))
]
"""All of the above."""
