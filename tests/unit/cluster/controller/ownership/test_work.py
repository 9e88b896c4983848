"""What a step proposes to a partition, and what it reports of the answer."""

from stockade.cluster.controller.commands import (
    FenceInstalled,
    ProducerFenceInstalled,
    ReaderFenceInstalled,
    WithdrawProducers,
)
from stockade.cluster.controller.ownership.slots import SlotInstall
from stockade.cluster.controller.ownership.work import (
    ProducerInstall,
    ProducerWithdrawal,
    ReaderInstall,
)
from stockade.partition.commands import (
    ClearFence,
    ForgetProducers,
    InstallFence,
    InstallProducer,
    InstallReader,
    ProducerInstalled,
    ProducersForgotten,
    ReaderInstalled,
    SlotState,
)

GROUP = 812 << 16 | 1
INSTALL = SlotInstall(GROUP, 3, InstallFence("g-812-3", 7, "s-1", "p", "Exclusive", 3))
CLEAR = SlotInstall(GROUP, 4, ClearFence("g-812-3", 7, 4))
READER = ReaderInstall(GROUP, "g", 5, False)
PRODUCER = ProducerInstall(GROUP, 1001, 4, 17)
FORGOTTEN = ProducerWithdrawal(GROUP, [1001, 1003], 18)


def test_each_kind_of_work_makes_its_command() -> None:
    assert INSTALL.command == InstallFence("g-812-3", 7, "s-1", "p", "Exclusive", 3)
    assert CLEAR.command == ClearFence("g-812-3", 7, 4)
    assert READER.command == InstallReader("g", 5, False)
    assert PRODUCER.command == InstallProducer(1001, 4, 17)
    assert FORGOTTEN.command == ForgetProducers([1001, 1003], 18)


def test_each_kind_of_work_makes_its_report() -> None:
    done = SlotState(done=True, topic_epoch=7)
    assert INSTALL.report(done, 5) == FenceInstalled(now_ms=5, group_id=GROUP, order=3)
    assert CLEAR.report(done, 5) == FenceInstalled(now_ms=5, group_id=GROUP, order=4)
    assert READER.report(ReaderInstalled(5), 5) == ReaderFenceInstalled(
        now_ms=5, group_id=GROUP, group="g", fence_epoch=5, owned=False
    )
    assert PRODUCER.report(ProducerInstalled(4), 5) == ProducerFenceInstalled(
        now_ms=5, pid=1001, epoch=4, group_id=GROUP
    )


def test_forgotten_producers_are_reported_with_the_index_of_the_question() -> None:
    assert FORGOTTEN.report(ProducersForgotten([1003]), 5) == WithdrawProducers(
        now_ms=5, group_id=GROUP, pids=[1003], order=18
    )
    assert FORGOTTEN.report(ProducersForgotten([]), 5) is None


def test_an_install_that_the_partition_refused_makes_no_report() -> None:
    refused = SlotState(done=False, topic_epoch=8)
    assert INSTALL.report(refused, 5) is None
    assert CLEAR.report(refused, 5) is None


def test_a_partition_with_a_later_producer_epoch_reports_that_epoch() -> None:
    report = PRODUCER.report(ProducerInstalled(9), 5)
    assert report == ProducerFenceInstalled(now_ms=5, pid=1001, epoch=9, group_id=GROUP)
