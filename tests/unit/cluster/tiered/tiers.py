"""Logs with their old segments in a folder, for tests: what a leader does for them, without a leader."""

import time
from functools import partial
from pathlib import Path

from stockade.cluster.tiered import objects
from stockade.cluster.tiered.log import TieredLog
from stockade.cluster.tiered.store import TieredStore
from stockade.partition.commands import AddTierObject, Append, BeginTier, Stamp, TierObject
from stockade.partition.log.segments import SegmentLog
from stockade.partition.records.batch import batch_from_columns
from stockade.partition.state.tier import Tier

FOLDER = "812-t/0-0123456789abcdef"
TERM = 3


def command(number: int, timestamps: list[int], value: bytes = b"v", stamp: Stamp | None = None) -> Append:
    count = len(timestamps)
    batch = batch_from_columns([None] * count, [value] * count, timestamps, None, now_ms=0, batch_bytes_max=1 << 20)
    return Append(batch.message, batch.count, batch.crc, 1000 + number, batch.max_timestamp_ms, stamp=stamp)


def store_at(tmp_path: Path, cache_bytes: int = 1 << 30, timeout_s: float = 30.0) -> TieredStore:
    return TieredStore(str(tmp_path / "store"), "house", tmp_path / "data", cache_bytes, timeout_s)


class Tiered:
    """A log, its list of objects, and the reads of both."""

    def __init__(self, directory: Path, store: TieredStore, segment_bytes_max: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log, self.tier, self.store = SegmentLog(segment_bytes_max), Tier(), store
        self.log.begin(directory)
        self.whole = TieredLog(self.log, self.tier)
        self.whole.store = store

    async def upload(self) -> TierObject | None:
        """The next object, uploaded and listed; None: there is none."""
        start = max(self.tier.end, self.log.log_start)
        segment = next((each for each in self.log.full_segments if each.next_offset > start), None)
        if segment is None:
            return None
        self.tier.begin(BeginTier(FOLDER))
        made = objects.make(segment, start, TERM, f"{time.monotonic_ns():x}")
        await self.store.run(partial(self.store.upload, FOLDER, made))
        listed = self.tier.add(AddTierObject(FOLDER, made.item), TERM, self.log.log_start, self.log.log_end)
        assert listed.is_taken
        return made.item

    async def tier_all(self) -> None:
        """Everything that may be in the store is there, and nowhere else."""
        while await self.upload() is not None:
            pass
        self.log.drop_local(self.tier.end)

    def trim(self, before: int) -> None:
        self.log.trim(before)
        self.tier.trim(self.log.log_start)


def path_of(store_root: Path, item: TierObject) -> Path:
    (path,) = store_root.rglob(f"{item.first:020d}-{item.end:020d}-*{item.nonce}*")
    return path
