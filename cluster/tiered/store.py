"""The tiered store as a node uses it: everything that blocks runs in threads of its own, a bounded number at a time,
and no reader waits longer than ``timeout_s``.

A store that hangs holds its threads, and then further calls are refused in time: nothing else of the node waits.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from ...partition.commands import TierObject
from ...partition.errors import TieredStoreUnavailable
from ...partition.log import segment_files
from ...partition.log.image import ImageDamaged
from ...partition.log.index import SegmentIndex
from ...partition.places.place import CannotReach, NotThere, Place
from ...partition.places.urls import without_arguments
from ...partition.state.tier import name_of
from . import objects
from .cache import Cache, Held, Key
from .objects import ObjectDamaged
from .settings import CACHE_BYTES
from .threads import threads

FETCHES_AT_ONCE = 4
FETCHES_WAITING_MAX = 64
"""Fetches of objects that are under way or wait for a thread; others are refused."""
CHECK_S = 60.0
"""Time after which files of the cache are compared again with what was written, when they are needed."""
LOW_CACHE_BYTES = CACHE_BYTES[0]
"""Most bytes of the cache while the disk has little room."""
RUN_TIMEOUT_S = 600.0
"""Time after which an upload or a removal counts as failed."""
REMOVALS_A_TURN = 100
"""Most objects that are removed before an upload has its turn: in an object store each takes three requests."""
FOLDER = "tiered"
"""The folder of cache and notes, in the data folder."""
CACHE = "cache"

EXPECTED = (CannotReach, NotThere, ObjectDamaged, ImageDamaged, OSError)
"""The errors that work with the store may raise."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Counts(msgspec.Struct):
    """Counts since the node started: uploads by outcome, and reads of old records by where their objects were."""

    stored: int = 0
    upload_failed: int = 0
    refused: int = 0
    cached: int = 0
    fetched: int = 0
    read_failed: int = 0


class TieredStore:
    """One place, and the cache of the objects that were fetched from it."""

    def __init__(self, url: str, prefix: str, data: Path, cache_bytes: int, timeout_s: float) -> None:
        """``prefix``: the folder of the cluster in the place. Nothing is asked of the place yet."""
        self.name: str = without_arguments(url)
        self.timeout_s: float = timeout_s
        self.counts: Counts = Counts()
        self.has_room: Callable[[], bool] = lambda: True
        """Whether this node's disk has room for more of the cache."""
        self._url, self._prefix = url, prefix
        self._place: Place | None = None
        self._cache = Cache(data / FOLDER / CACHE, cache_bytes)
        self._cache_bytes = cache_bytes
        self._fetches: dict[Key, asyncio.Task[SegmentIndex]] = {}
        self._readers = threads(FETCHES_AT_ONCE, "fetch")
        self._writers = threads(1, "upload")
        self._removers = threads(1, "remove")
        self._lookers = threads(1, "look")  # its own, since uploads and fetches take long

    async def segment(self, folder: str, item: TierObject) -> SegmentIndex:
        """An object as a segment on this disk, from the cache or fetched into it. Raises TieredStoreUnavailable."""
        key = folder, item
        held = self._cache.get(key)
        if held is not None and await self._is_good(key, held):
            self.counts.cached += 1
            return held.segment
        task = self._fetches.get(key)
        if task is None:
            if len(self._fetches) >= FETCHES_WAITING_MAX:
                raise self._unavailable(f"{FETCHES_WAITING_MAX} objects are being fetched already")
            if not self.has_room():
                raise self._unavailable("this node's disk has no room for them")
            task = self._fetches[key] = asyncio.create_task(self._fetch(folder, item))
            task.add_done_callback(partial(self._fetched, key))
        try:
            async with asyncio.timeout(self.timeout_s):
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise self._unavailable(f"it did not answer within {self.timeout_s:g} s") from error
        except (NotThere, ObjectDamaged) as error:
            raise self._unavailable(f"{folder}/{name_of(item)} is not as it was stored", error) from error
        except (CannotReach, OSError) as error:
            raise self._unavailable("it, or this node's cache of it, cannot be used", error) from error

    async def _is_good(self, key: Key, held: Held) -> bool:
        """Whether the files of an object in the cache are as they were written, as bits on a disk can flip; they are
        compared once in CHECK_S. An object that is not good is dropped.
        """
        now = time.monotonic()
        if now < held.good_until:
            return True
        held.good_until = now + CHECK_S
        try:
            is_good = await asyncio.to_thread(objects.sums, held.segment) == held.sums
        except OSError:
            is_good = False
        if not is_good:
            _log.warning("fetching %s again: its files in the cache are not as they were written", name_of(key[1]))
            self._remove_soon(self._cache.drop(key, held))
        return is_good

    def _unavailable(self, what: str, error: Exception | None = None) -> TieredStoreUnavailable:
        """The refusal for clients. The error itself, which may name buckets and hosts, goes to this node's log only."""
        self.counts.read_failed += 1
        _log.warning("old records cannot be read from %s: %s (%s)", self.name, what, error or "no error")
        return TieredStoreUnavailable(f"these records are in {self.name}: {what}", self.name)

    async def _fetch(self, folder: str, item: TierObject) -> SegmentIndex:
        work = partial(self._fetch_here, f"{folder}/{name_of(item)}", item, self._cache.path(item))
        segment, sums = await asyncio.get_running_loop().run_in_executor(self._readers, work)
        self.counts.fetched += 1
        self._remove_soon(self._cache.add((folder, item), Held(segment, sums, time.monotonic() + CHECK_S)))
        return segment

    def keep_cached(self, is_wanted: Callable[[Key], bool], *, is_low: bool) -> None:
        """Drop from the cache what is not wanted any more and, while the disk has little room, all but what was read
        last: it can be fetched again, and appends are refused meanwhile.
        """
        self._cache.bytes_max = min(self._cache_bytes, LOW_CACHE_BYTES) if is_low else self._cache_bytes
        self._remove_soon(self._cache.keep(is_wanted))

    def _remove_soon(self, doomed: list[Path]) -> None:
        """Remove files of the cache, in a thread: readers of an object need not wait until others have made room."""
        if doomed:
            self._removers.submit(_remove, doomed)

    def _fetched(self, key: Key, task: "asyncio.Task[SegmentIndex]") -> None:
        del self._fetches[key]
        if not task.cancelled():
            task.exception()  # retrieved, since a caller that gave up does not ask for it

    def _fetch_here(self, path: str, item: TierObject, there: Path) -> tuple[SegmentIndex, tuple[int, int]]:
        packed = there.with_suffix(".part")
        try:
            self._guarded(lambda place: objects.receive(place.pieces(self._path(path)), item, packed))
            segment = objects.unpack(packed, item, there)
            return segment, objects.sums(segment)
        except BaseException:
            segment_files.remove([there, there.with_suffix(".index")])
            raise
        finally:
            segment_files.remove([packed])

    async def run(self, work: Callable[[Place], _T], timeout_s: float = RUN_TIMEOUT_S) -> _T:
        """The answer of ``work``: uploads and removals run in one thread, in the order of the calls.

        Raises what ``work`` raises, CannotReach, and TimeoutError, after which the work may go on.
        """
        future = asyncio.get_running_loop().run_in_executor(self._writers, lambda: self._guarded(work))
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(future)

    async def has(self, folder: str, item: TierObject) -> bool:
        """Whether an object is there, with as many bytes as it was stored with. Raises CannotReach, OSError, and
        TimeoutError after ``timeout_s``.
        """
        path = self._path(f"{folder}/{name_of(item)}")
        look = partial(self._guarded, lambda place: place.size(path))
        try:
            async with asyncio.timeout(self.timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._lookers, look) == item.size
        except NotThere:
            return False

    def close(self) -> None:
        """Begin nothing more. Threads that wait for the store are not awaited here; only the end of the process waits
        for them (threads.py).
        """
        for each in (self._readers, self._removers, self._writers, self._lookers):
            each.shutdown(wait=False, cancel_futures=True)

    def upload(self, folder: str, made: objects.Made, place: Place) -> None:
        """Write an object and read it again. Blocks. Raises CannotReach, NotThere, ObjectDamaged."""
        path = self._path(f"{folder}/{name_of(made.item)}")
        place.write(path, made.content)
        objects.check(place.pieces(path), made.item)

    def names(self, folder: str, place: Place) -> list[str]:
        """The files in a partition's folder. Blocks. Raises CannotReach, also where the cluster's folder is missing: a
        share that is not mounted looks as empty as a folder without objects.
        """
        place.check_folder(self._prefix)
        start = len(self._path(folder)) + 1
        return [path[start:] for path in place.sizes(self._path(folder))]

    def sweep(self, folder: str, choose: Callable[[list[str]], list[str]], place: Place) -> list[str]:
        """Remove the files of a folder that ``choose`` chooses, REMOVALS_A_TURN of them at most; returns their names.
        Blocks. Raises CannotReach.
        """
        return self._remove_some(folder, choose(self.names(folder, place)), place)

    def remove_all(self, folder: str, gone: set[str], place: Place) -> bool:
        """Remove files of a folder, REMOVALS_A_TURN of them at most, and add their names to ``gone``; or, if it has
        none, the folder itself, and the topic's after its last one; returns whether it had none. Blocks. Raises
        CannotReach, also if the folder lists nothing but files of ``gone``: the listing is out of date.
        """
        names = self.names(folder, place)
        removed = self._remove_some(folder, [name for name in names if name not in gone], place)
        gone.update(removed)
        if names and not removed:
            raise CannotReach(f"{self.name} still lists {len(names)} files that were removed")
        if not names:
            place.remove_folder(self._path(folder))
            place.remove_if_empty(self._path(folder.partition("/")[0]))
        return not names

    def _remove_some(self, folder: str, names: list[str], place: Place) -> list[str]:
        doomed = names[:REMOVALS_A_TURN]
        for name in doomed:
            place.remove(self._path(f"{folder}/{name}"))
        return doomed

    def _path(self, path: str) -> str:
        return f"{self._prefix}/{path}"

    def _guarded(self, work: Callable[[Place], _T]) -> _T:
        """The answer of ``work``. Unexpected errors of fsspec's file systems become CannotReach, and stop no node."""
        try:
            return work(self._opened())
        except EXPECTED:
            raise
        except Exception as error:
            raise CannotReach(f"{self.name}: {error!r}") from error

    def _opened(self) -> Place:
        if self._place is None:
            self._place = Place(self._url)
        return self._place


def _remove(doomed: list[Path]) -> None:
    """Remove files of the cache, as far as that goes: a start removes what is left."""
    for path in doomed:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("a file stays in the cache of old records: %s", error)
