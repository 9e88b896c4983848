"""Pruning: what stays, and that no backup ever loses a file, in whatever order backups and prunings do their steps."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from stockade.cli.backup.begin import CannotBackUp, begin, begun_ms, end
from stockade.cli.backup.manifest import (
    Damaged,
    DataFile,
    Manifest,
    Missing,
    PartitionBackup,
    TopicBackup,
    encode,
)
from stockade.cli.backup.prune import ABANDONED_MS, Keep, Needed, chosen, prune, unneeded
from stockade.cli.backup.store import DATA, MANIFESTS, UNFINISHED, Store
from stockade.partition.api.topics import TopicConfig
from stockade.partition.places.place import CannotReach, NotThere

NOW_MS = 1_000_000_000_000


def file(path: str, size: int = 1) -> DataFile:
    return DataFile(path, 0, 1, size, "", 0, 0)


def manifest(name: str, *files: str, cut_ms: int = 0) -> Manifest:
    partitions = [PartitionBackup(0, 0, 1, None, [file(path) for path in files])]
    topic = TopicBackup("t", 7, 3, False, TopicConfig(), partitions)
    return Manifest(name, "c", "1", cut_ms, cut_ms, NOW_MS, [topic], [], [], has_digest=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(str(tmp_path))
    for name, *paths in (("1", "a", "b"), ("2", "b", "c"), ("3", "c", "d")):
        for path in paths:
            found.write(f"{DATA}/{path}", b"x")
        found.add(manifest(name, *(f"{DATA}/{path}" for path in paths), cut_ms=int(name) * 10))
    return found


def test_of_each_hour_the_newest_backup_stays_and_goes_when_it_is_too_old() -> None:
    """A month of backups, one a minute, could be kept as a whole only: of 10,000 partitions 43,200 times 5 MB."""
    hour, minute = 3_600_000, 60_000
    cuts = {f"{number:05}": NOW_MS + number * minute for number in range(3 * 24 * 60)}
    now_ms = max(cuts.values())
    keep = Keep(1, now_ms - hour, now_ms - 48 * hour)
    gone = set(chosen(cuts, keep))
    later = {name: cut for name, cut in cuts.items() if name not in gone}
    kept = sorted(later.values())
    assert [cut for cut in kept if cut >= now_ms - hour] == [now_ms - hour + k * minute for k in range(61)]
    hours = [cut // hour for cut in kept if cut < now_ms - hour]
    assert hours == list(range((now_ms - 48 * hour) // hour, (now_ms - hour) // hour)), "one of each"
    assert chosen(later, keep) == [], "what stays does so at the next pruning, too"


@pytest.mark.parametrize(
    ("keep", "gone"),
    [
        (Keep(1, None), ["1", "2"]),
        (Keep(2, None), ["1"]),
        (Keep(4, None), []),
        (Keep(9, None), []),
        (Keep(0, None), ["1", "2"]),
        (Keep(1, 20), ["1"]),
        (Keep(1, 99), ["1", "2"]),  # the newest stays at any age
        (Keep(2, 99), ["1"]),  # either reason is enough
        (Keep(1, 0), []),
        (Keep(1, None, 0), ["1", "2"]),  # all are of one hour
    ],
)
def test_a_backup_stays_for_either_reason_and_the_newest_always(store: Store, keep: Keep, gone: list[str]) -> None:
    needed = Needed()
    needed.read(store)
    assert chosen(needed.cuts, keep) == gone


def test_files_go_with_the_last_backup_that_needs_them(store: Store) -> None:
    would = prune(store, Keep(2, None), NOW_MS, dry=True)
    assert store.manifests() == ["1", "2", "3"]
    assert prune(store, Keep(2, None), NOW_MS) == would
    assert (would.backups, would.files, would.bytes) == (["1"], 1, 1)
    assert set(store.sizes(DATA)) == {f"{DATA}/{path}" for path in "bcd"}
    assert store.manifests() == ["2", "3"]
    prune(store, Keep(1, None), NOW_MS)
    assert set(store.sizes(DATA)) == {f"{DATA}/{path}" for path in "cd"}
    assert set(store.sizes(MANIFESTS)) == {f"{MANIFESTS}/3.json", f"{MANIFESTS}/3.json.sha256"}


def test_with_a_manifest_that_cannot_be_read_nothing_is_removed(store: Store) -> None:
    before = store.sizes("")
    store.write(f"{MANIFESTS}/1.json", store.read(f"{MANIFESTS}/1.json").replace(b'"cut_ms": 10', b'"cut_ms": 11'))
    with pytest.raises(Damaged, match=r"manifests/1\.json"):
        prune(store, Keep(1, None), NOW_MS)
    assert store.sizes("") == before


def test_files_announced_by_an_unfinished_backup_stay_until_it_is_abandoned(store: Store) -> None:
    store.announce(manifest("4", f"{DATA}/a"))
    prune(store, Keep(1, None), NOW_MS + ABANDONED_MS)
    assert set(store.sizes(DATA)) == {f"{DATA}/{path}" for path in "acd"}
    prune(store, Keep(1, None), NOW_MS + ABANDONED_MS + 1)
    assert set(store.sizes(DATA)) == {f"{DATA}/{path}" for path in "cd"}
    assert store.announced() == ([], {})


def test_a_backup_goes_on_from_the_newest_manifest_that_can_be_read(store: Store) -> None:
    store.write(f"{MANIFESTS}/3.json", b"cut off")
    begun = begin(store, "c")
    assert begun.previous is not None
    assert (begun.previous.name, len(begun.damaged)) == ("2", 1)
    with pytest.raises(CannotBackUp, match="the cluster c, not other"):
        begin(store, "other")


def test_a_backup_behind_one_of_a_clock_that_was_ahead_is_the_newest_and_stays(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    ahead = "29991231T235959.999999Z-0a0b0c"
    store.add(manifest(ahead))
    for _ in range(3):
        begun = begin(store, "c")
        end(store, begun, manifest(begun.name, cut_ms=begun.started_ms))
        assert prune(store, Keep(1, None), NOW_MS).backups == [ahead]
        assert store.manifests() == [begun.name]
        ahead = begun.name


def test_a_backup_that_was_overtaken_by_a_pruning_comes_to_nothing(store: Store) -> None:
    begun = begin(store, "c")
    prune(store, Keep(3, None), NOW_MS)
    with pytest.raises(CannotBackUp, match="make it again"):
        end(store, begun, manifest(begun.name))
    assert (store.manifests(), store.announced()) == (["1", "2", "3"], ([], {}))


Script = Sequence[tuple[int, str]]
"""Which thread goes on next, until it has done a step with these words in it; "": to its end."""


class Steps:
    """Lets one thread at a time take one step, in the order of a script, then in one that a seed says: bursts of 1 to
    32 steps, since most mistakes need one that pauses while another does much.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._changed = threading.Condition()
        self._waiting: dict[int, str] = {}
        self._alive = 0
        self._turn: int | None = None
        self._last, self._burst = -1, 0
        self.trace: list[str] = []

    def run(self, work: list[Callable[[], object]], script: Script = ()) -> None:
        """Run all of these to their end."""
        self._alive = len(work)
        threads = [threading.Thread(target=self._worker, args=(number, each)) for number, each in enumerate(work)]
        for thread in threads:
            thread.start()
        with self._changed:
            self._wait()
            for number, words in script:
                while number in self._waiting:
                    step = self._let(number)
                    if words and words in step:
                        break
            while self._alive:
                if not self._burst or self._last not in self._waiting:
                    self._last, self._burst = self._random.choice(sorted(self._waiting)), 2 ** self._random.randrange(6)
                self._burst -= 1
                self._let(self._last)
        for thread in threads:
            thread.join()

    def _let(self, number: int) -> str:
        self._turn, step = number, self._waiting.pop(number)
        self.trace.append(step)
        self._changed.notify_all()
        self._wait()
        return step

    def _wait(self) -> None:
        self._changed.wait_for(lambda: self._turn is None and len(self._waiting) == self._alive)

    def _worker(self, number: int, work: Callable[[], object]) -> None:
        self._number.value = number
        with self.step("begins"):
            pass
        try:
            work()
        finally:
            with self._changed:
                self._alive -= 1
                self._changed.notify_all()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Wait for the turn, and hold it."""
        number = self._number.value
        with self._changed:
            self._waiting[number] = f"{number} {what}"
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == number)
        try:
            yield
        finally:
            with self._changed:
                self._turn = None
                self._changed.notify_all()

    class _Number(threading.local):
        value = -1

    _number = _Number()


class MemoryStore(Store):
    """A place in memory in which each access is one step."""

    def __init__(self, steps: Steps) -> None:
        self.url = "memory"
        self.files: dict[str, bytes] = {}
        self._steps = steps

    def write(self, path: str, content: object) -> None:
        with self._steps.step(f"writes {path}"):
            self.files[path] = bytes(content)  # type: ignore[call-overload]

    def read(self, path: str) -> bytes:
        with self._steps.step(f"reads {path}"):
            if path not in self.files:
                raise Missing(path)
            return self.files[path]

    def remove(self, path: str) -> None:
        with self._steps.step(f"removes {path}"):
            self.files.pop(path, None)

    def size(self, path: str) -> int:
        with self._steps.step(f"looks at {path}"):
            if path not in self.files:
                raise NotThere(path)
            return len(self.files[path])

    def sizes(self, folder: str) -> dict[str, int]:
        with self._steps.step(f"lists {folder}"):
            return {path: len(content) for path, content in self.files.items() if path.startswith(f"{folder}/")}


def make_backup(store: Store, number: int, *, keeps: bool = True) -> None:
    """One that uses the newest file of the last backup (``keeps``), and adds one of its own."""
    begun = begin(store, "c")
    names = [each.path for _, each in begun.previous.files][-1:] if begun.previous is not None and keeps else []
    own = f"{DATA}/{begun.name}"
    store.write(own, b"x")
    made = manifest(f"{begun.name}-{number}", *names, own)
    try:
        end(store, begun, made)
    except CannotBackUp:
        return


def lost(store: MemoryStore) -> list[str]:
    """Files that a manifest names, and that are gone."""
    found = [
        msgspec.json.decode(content, type=Manifest) for path, content in store.files.items() if path.endswith(".json")
    ]
    return [each.path for one in found for _, each in one.files if each.path not in store.files]


def played(seed: int, backups: int, prunings: int, script: Script = ()) -> tuple[list[str], list[str]]:
    """(files that were lost, what was done). The first threads make backups, the others prune."""
    steps = Steps(seed)
    store = MemoryStore(steps)
    for _ in range(2):
        steps.run([partial(make_backup, store, 0)])
    steps.trace.clear()
    work: list[Callable[[], object]] = [partial(make_backup, store, each, keeps=each != 1) for each in range(backups)]
    work += [partial(prune, store, Keep(1, None), NOW_MS) for _ in range(prunings)]
    steps.run(work, script)
    assert any(path.startswith(MANIFESTS) and path.endswith(".json") for path in store.files)
    return lost(store), steps.trace


@pytest.mark.parametrize(("backups", "prunings"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_no_order_of_steps_costs_a_backup_a_file(backups: int, prunings: int) -> None:
    for seed in range(200):
        gone, trace = played(seed, backups, prunings)
        assert not gone, (seed, trace)


@pytest.mark.parametrize(
    ("backups", "script"),
    [
        pytest.param(1, [(0, "writes data"), (1, ""), (0, "")], id="its file is there, and not announced"),
        pytest.param(
            1, [(1, "writes pruned"), (0, "writes data"), (1, ""), (0, "")], id="it began after the mark was written"
        ),
        pytest.param(
            2,
            [(2, "writes pruned"), (0, "lists data"), (1, ""), (3, "removes manifests"), (2, ""), (0, ""), (3, "")],
            id="two prune, and the backup that it goes on from is removed before the mark is",
        ),
        pytest.param(
            2,
            [
                (2, "writes pruned"),
                (0, "lists data"),
                (1, ""),
                (2, "lists unfinished"),
                (0, "reads pruned"),
                (3, "removes manifests"),
                (2, ""),
                (0, ""),
                (3, ""),
            ],
            id="it is announced between the reading of announcements and of manifests",
        ),
    ],
)
def test_the_orders_that_each_step_is_for_cost_no_file(backups: int, script: Script) -> None:
    """Each of these costs one if the order of steps, or a check, is another one (prune.py)."""
    gone, trace = played(0, backups, backups, script)
    assert not gone, trace


def test_unneeded_files_are_those_that_no_manifest_names(store: Store) -> None:
    needed = Needed()
    needed.read(store)
    files = {f"{DATA}/{path}": 1 for path in "abcdef"}
    assert unneeded(files, [manifest("4", f"{DATA}/e")], needed) == {f"{DATA}/f": 1}


BEGAN_MS = 1_767_225_600_000
HALF = "20260101T000000.000000Z-abcdef"
"""The name of a backup that began then."""


def test_an_announcement_that_cannot_be_read_stops_pruning_until_it_is_abandoned(store: Store) -> None:
    """An object store kept a part of it: pruning ended for ever, and did not say why."""
    path = f"{UNFINISHED}/{HALF}.json"
    store.write(path, b'{"name":')
    before = store.sizes(DATA)
    with pytest.raises(Damaged, match=rf"{path}: .*before it is 7 days old"):
        prune(store, Keep(1, None), BEGAN_MS + ABANDONED_MS)
    assert store.sizes(DATA) == before
    prune(store, Keep(1, None), BEGAN_MS + ABANDONED_MS + 1)
    assert set(store.sizes(DATA)) == {f"{DATA}/{name}" for name in "cd"}
    assert store.sizes(UNFINISHED) == {}


def test_an_announcement_that_is_completed_meanwhile_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its backup began long ago, and is alive: what is read in the end counts."""
    store.write(f"{UNFINISHED}/{HALF}.json", b'{"name":')
    whole = msgspec.structs.replace(manifest(HALF, f"{DATA}/a"), ended_ms=BEGAN_MS + 2 * ABANDONED_MS)
    begins = store.begin_pruning

    def begin_pruning(mark: bytes) -> None:
        begins(mark)
        store.announce(whole)

    monkeypatch.setattr(store, "begin_pruning", begin_pruning)
    prune(store, Keep(1, None), BEGAN_MS + 2 * ABANDONED_MS)
    assert store.announced() == ([whole], {})
    assert set(store.sizes(DATA)) == {f"{DATA}/{name}" for name in "acd"}


def test_the_name_of_a_backup_tells_when_it_began() -> None:
    assert (begun_ms(HALF), begun_ms("notes")) == (BEGAN_MS, None)


class Counting(Store):
    """A place that counts how often each file is read."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.reads: Counter[str] = Counter()

    def read(self, path: str) -> bytes:
        self.reads[path] += 1
        return super().read(path)


def test_a_service_reads_each_manifest_once(store: Store) -> None:
    """Each pruning read all of them three times, and held them in memory: a month of a backup each minute took 15 GiB,
    and longer than the minute.
    """
    counting, needed = Counting(store.url), Needed()
    prune(counting, Keep(9, None), NOW_MS, needed)
    assert [counting.reads[f"{MANIFESTS}/{name}.json"] for name in "123"] == [1, 1, 1]
    counting.reads.clear()
    store.write(f"{DATA}/e", b"x")
    store.add(manifest("4", f"{DATA}/d", f"{DATA}/e", cut_ms=40))
    assert prune(counting, Keep(3, None), NOW_MS, needed).backups == ["1"]
    assert [path for path in counting.reads if path.endswith(".json")] == [f"{MANIFESTS}/4.json"]
    assert set(store.sizes(DATA)) == {f"{DATA}/{name}" for name in "bcde"}


@pytest.mark.parametrize("gone", [["1"], ["2"], ["1", "2"]])
def test_files_of_backups_that_others_pruned_meanwhile_are_removed(store: Store, gone: list[str]) -> None:
    """Also the newest one that names a file, while an older one is there."""
    store.write(f"{DATA}/e", b"x")
    store.add(manifest("2", *(f"{DATA}/{path}" for path in "bce")))
    needed = Needed()
    needed.read(store)
    for name in gone:
        store.forget(name)
    prune(store, Keep(9, None), NOW_MS, needed)
    files = {"1": "ab", "2": "bce", "3": "cd"}
    kept = {path for name, paths in files.items() if name not in gone for path in paths}
    assert set(store.sizes(DATA)) == {f"{DATA}/{path}" for path in kept}


def test_a_backup_with_an_older_name_and_a_later_cut_keeps_its_files(store: Store) -> None:
    """Two were made at the same time, and the one that began first read the ends last."""
    store.add(manifest("1", f"{DATA}/a", f"{DATA}/b", cut_ms=25))
    assert prune(store, Keep(1, 25), NOW_MS, dry=True) == prune(store, Keep(1, 25), NOW_MS)
    assert store.manifests() == ["1", "3"]
    assert set(store.sizes(DATA)) == {f"{DATA}/{path}" for path in "abcd"}


@pytest.mark.parametrize("shown", [[], ["1", "2"]])
def test_a_place_that_does_not_show_its_newest_backup_any_more_is_not_pruned(
    store: Store, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fails may answer an empty list."""
    needed, before = Needed(), store.sizes(DATA)
    needed.read(store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "manifests", lambda: shown)
        with pytest.raises(CannotReach, match=r"manifests/3\.json was there"):
            prune(store, Keep(1, None), NOW_MS, needed)
    assert store.sizes(DATA) == before
    assert prune(store, Keep(1, None), NOW_MS, needed).backups == ["1", "2"]
    store.forget("3")
    with pytest.raises(CannotReach):  # removed by hand: told once
        prune(store, Keep(1, None), NOW_MS, needed)
    assert prune(store, Keep(1, None), NOW_MS, needed) == ([], 0, 0)


@pytest.mark.parametrize("outside", ["../kept", "../../{place}/kept"])
def test_a_forged_announcement_has_no_file_outside_the_place_removed(
    store: Store, tmp_path: Path, outside: str
) -> None:
    """An announcement that is old enough was withdrawn by the name in it, whatever that was."""
    forged = msgspec.structs.replace(manifest("4"), name=outside.format(place=tmp_path.name))
    kept = tmp_path / "kept.json"
    kept.write_text("{}")
    store.write(f"{UNFINISHED}/{HALF}.json", encode(forged))
    prune(store, Keep(1, None), BEGAN_MS + ABANDONED_MS + 1)
    assert kept.exists()
    assert store.sizes(UNFINISHED) == {}


@pytest.mark.parametrize("path", ["../secret", f"{DATA}/../../secret", "/etc/hostname"])
def test_a_manifest_names_no_file_outside_of_its_place(store: Store, path: str) -> None:
    store.add(manifest("1", path))
    with pytest.raises(Damaged, match="outside of its place"):
        store.manifest("1")
