"""Helpers for tests of producer names and ids."""

from msgspec.structs import replace

from stockade.cluster.controller.commands import Enrol, Enrolled, FenceProducer, GroupId, ProducerState, Result
from stockade.cluster.controller.producers import ProducerRow
from stockade.partition.errors import ProducerFenced, StockadeError

from .driver import Driver

PID = 1001
"""The first named producer of every driver."""
EXHAUSTED = 32766
"""The last epoch that a client is given."""


def producer(pid: int, epoch: int, name: str | None = "w") -> ProducerState:
    return ProducerState(pid, epoch, name, [])


def fenced(epoch: int) -> ProducerFenced:
    return ProducerFenced(reason="identity", current_epoch=epoch)


def row_of(driver: Driver) -> ProducerRow:
    return driver.machine.registry.rows["w"]


def at(epoch: int, last: tuple[int, int] | None = None) -> Driver:
    """A driver where the name "w" has this epoch: far epochs are set, not counted up to."""
    driver = Driver()
    driver.init("w")
    for machine in (driver.machine, driver.twin):
        machine.registry.rows["w"].epoch = epoch
        machine.registry.rows["w"].last = last
    return driver


def fence(driver: Driver) -> Result | StockadeError:
    return driver.do(FenceProducer(now_ms=0, name="w"))


def enrol(driver: Driver, pid: int, group: GroupId) -> Result | StockadeError:
    """The answer, with 0 in place of its place in the log."""
    answer = driver.do(Enrol(now_ms=0, pid=pid, group_id=group))
    if isinstance(answer, Enrolled):
        assert answer.order == driver.index
        return replace(answer, order=0)
    return answer
