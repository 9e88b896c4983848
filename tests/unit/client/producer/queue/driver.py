"""A partition's queue, driven by hand: no loop, no network, a clock that is a number."""

from dataclasses import dataclass, field

from stockade.client.api.conditions import Conditions
from stockade.client.config import ClientConfig
from stockade.client.producer.queue.batch import Batch, Receipt, Record
from stockade.client.producer.queue.partition_queue import PartitionQueue, Settle, Settled, Wait
from stockade.partition.errors import (
    NotLeaderOrFollower,
    OutOfOrderSequence,
    RequestTimedOut,
    StockadeError,
)

CONFIG = ClientConfig(linger_ms=0, retry_backoff_ms=50, retry_backoff_ms_max=200, batch_records_max=1)
GAP = OutOfOrderSequence(reason="gap", expected_seq=0, last_seq=-1)
NOT_LEADER = NotLeaderOrFollower(None, None)
UNKNOWN = RequestTimedOut()
COMMITTED = {"state": "committed", "base_offset": 7, "last_offset": 7}


def encode(batch: Batch) -> None:
    batch.message = b"".join(value or b"" for value in batch.values)


@dataclass
class Driver:
    """A queue, the clock, and everything that left and was settled, by the value of the batch's first record."""

    config: ClientConfig = CONFIG
    now_s: float = 0.0
    wire: list[str] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    batches: dict[str, Batch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = PartitionQueue(self.config, encode, self.config.batch_bytes_max)

    def add(self, *names: str) -> None:
        for name in names:
            record = Record(None, name.encode(), 0)
            self.batches[name] = self.queue.add(record, record.size, self.now_s)[0]

    def add_batch(
        self, *names: str, message: bytes | None = None, if_log_end: int | None = None, message_id: str | None = None
    ) -> int:
        """The position of the first of them in the batch that has them."""
        batch = Batch.of([name.encode() for name in names], None, None, None, now_ms=0)
        batch.created_s, batch.message = self.now_s, message
        batch.conditions = Conditions(if_log_end, message_id)
        batch, first = self.queue.add_batch(batch)
        self.batches |= dict.fromkeys(names, batch)
        return first

    def pump(self, *, written: bool = True) -> Wait:
        while True:
            action = self.queue.poll(self.now_s)
            if isinstance(action, Wait):
                return action
            if isinstance(action, Settle):
                self.settle(action.settled)
            else:
                self.wire.append(self.name(action.batch))
                if written:
                    self.queue.written(action.batch)

    def settle(self, settled: list[Settled]) -> None:
        for batch, outcome in settled:
            batch.settle(outcome)
        self.settled += settled

    def store(self, name: str, offset: int | None = 0, *, duplicate: bool = False) -> None:
        batch = self.batches[name]
        receipt = Receipt("t", 0, offset, batch.count, duplicate, 0)
        self.settle(self.queue.stored(batch, receipt))
        self.pump()

    def refuse(self, name: str, error: StockadeError) -> None:
        self.settle(self.queue.refused(self.batches[name], error, self.now_s))
        self.pump()

    def wait(self, ms: int) -> None:
        self.now_s += ms / 1000
        self.pump()

    def name(self, batch: Batch) -> str:
        return next(name for name, known in self.batches.items() if known is batch)

    @property
    def outcomes(self) -> dict[str, str]:
        """In the order of settling: the name of a batch, and its offset or the code and outcome of its refusal."""
        return {self.name(batch): describe(outcome) for batch, outcome in self.settled}


def describe(outcome: Receipt | StockadeError) -> str:
    if isinstance(outcome, Receipt):
        return str(outcome.offset)
    return f"{outcome.code} {outcome.fields['outcome']['state']}"


def in_flight(*names: str, config: ClientConfig = CONFIG) -> Driver:
    driver = Driver(config)
    driver.add(*names)
    driver.pump()
    return driver
