"""The cost of a fence and a sequence number at one replica: processor time of an append, plain and fenced and numbered.

``python bench/fenced.py [--appends 5000] [--repeats 9]`` encodes commands of one record of 1 KiB, and applies them to
a partition's machine with its files, in turns: one run plain, one fenced and numbered. No Raft and no HTTP is in it;
`make bench ONLY=requests,fenced` measures it with both.
"""

# ruff: noqa: T201  # it prints a table

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from stockade.partition.commands import Append, Appended, InstallFence, InstallProducer, Stamp, Token, encode_command
from stockade.partition.log.segments import SegmentLog
from stockade.partition.records.batch import batch_from_columns
from stockade.partition.state.machine import PartitionConfig, PartitionMachine

PRODUCERS = 256
"""As many as the workload `fenced` of `make bench` has connections."""
TOPIC_ID = 7
TOKEN = Token(f"g-{TOPIC_ID}-1", 1, "s-0123456789abcdef0123456789abcdef")


class Replica:
    """A partition's machine and its log. ``is_fenced``: every append has a token and a stamp."""

    def __init__(self, directory: Path, *, is_fenced: bool) -> None:
        log = SegmentLog(64 << 20)
        directory.mkdir()
        log.begin(directory)
        self._machine = PartitionMachine(PartitionConfig(TOPIC_ID), log)
        self._is_fenced = is_fenced
        self._index = 0
        self._batch = batch_from_columns([None], [b"x" * 1024], None, None, now_ms=1, batch_bytes_max=1 << 20)
        grant = InstallFence(TOKEN.grant_id, TOKEN.epoch, TOKEN.session, "bench", "Exclusive", 1)
        if is_fenced:
            self._apply(encode_command(grant))
        for pid in range(PRODUCERS):
            self._apply(encode_command(InstallProducer(2 * pid + 1, 0)))

    def _apply(self, command: bytes) -> object:
        self._index += 1
        return self._machine.apply(self._index, 1, command)

    def run(self, appends: int, start: int) -> float:
        """Processor time of one append, in microseconds, over ``appends``; ``start``: the number of earlier ones."""
        batch, token = self._batch, TOKEN if self._is_fenced else None
        began = time.process_time()
        for number in range(start, start + appends):
            pid, sequence = number % PRODUCERS, number // PRODUCERS
            stamp = Stamp(2 * pid + 1, 0, sequence) if self._is_fenced else None
            command = Append(
                message=batch.message,
                count=1,
                crc=batch.crc,
                timestamp_ms=batch.received_ms,
                max_timestamp_ms=batch.max_timestamp_ms,
                token=token,
                stamp=stamp,
                now_ms=number // 10,
            )
            assert type(self._apply(encode_command(command))) is Appended
        return (time.process_time() - began) / appends * 1e6


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--appends", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=9)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plain = Replica(Path(scratch) / "plain", is_fenced=False)
        fenced = Replica(Path(scratch) / "fenced", is_fenced=True)
        pairs = []
        for repeat in range(chosen.repeats + 1):  # the first round warms up
            start = repeat * chosen.appends
            pairs.append((plain.run(chosen.appends, start), fenced.run(chosen.appends, start)))
    plains, fences = zip(*pairs[1:], strict=True)
    ratio = statistics.median(one / other for one, other in pairs[1:])
    print(f"plain:               {statistics.median(plains):6.2f} µs of processor time an append")
    print(f"fenced and numbered: {statistics.median(fences):6.2f} µs")
    print(f"plain / fenced:      {ratio:6.2f} (median of {chosen.repeats} alternating pairs)")


if __name__ == "__main__":
    main()
