"""What a backup asks of a cluster: that it shows everything, and that it is the one of the last backup."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from stockade.cli.backup import create as create_module
from stockade.cli.backup.begin import CannotBackUp, begin
from stockade.cli.backup.create import (
    FETCH_BYTES,
    FETCH_BYTES_FIRST,
    FETCH_BYTES_UNPACKED,
    Progress,
    back_up,
    next_fetch_bytes,
)
from stockade.cli.backup.files import Attempt
from stockade.cli.backup.manifest import Manifest
from stockade.cli.backup.prune import Keep, prune
from stockade.cli.backup.store import DATA, Store
from stockade.cli.backup.verify import batches_of, verify
from stockade.client.config import ClientConfig
from stockade.partition.api.principals import PrincipalInfo, PrincipalList
from stockade.partition.api.records import GroupPosition
from stockade.partition.api.topics import PartitionState, Topic, TopicConfig
from stockade.partition.errors import OffsetOutOfRange, PermissionDenied, UnknownTopicOrPartition
from stockade.partition.records.batch import SCHEMA


def batch(values: Sequence[str], first: int) -> pa.RecordBatch:
    columns = [
        pa.nulls(len(values), pa.binary()),
        pa.array([value.encode() for value in values], pa.binary()),
        pa.array(range(first, first + len(values)), SCHEMA.field("timestamp").type),
        pa.nulls(len(values), SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class Cluster:
    """A client of a cluster with topics of one partition. ``hidden``: topics on which the caller has no right.
    ``groups``: so many have a position on each partition, and the caller may know those of ``known``.
    """

    config = ClientConfig()

    def __init__(self, topics: dict[str, list[str]], topic_id: int = 7) -> None:
        self.values = topics
        self.ids = dict.fromkeys(topics, topic_id)
        self.starts = dict.fromkeys(topics, 0)
        self.hidden: set[str] = set()
        self.groups, self.known = 0, list[str]()
        self.asked: list[int] = []
        self.before_fetch: Callable[[], None] = lambda: None
        self.before_offsets: Callable[[], None] = lambda: None

    async def connect(self) -> Any:
        return SimpleNamespace(cluster_id="c")

    async def topics(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.values if name not in self.hidden]

    async def topic(self, name: str) -> Topic:
        if name in self.hidden:
            raise PermissionDenied(f"principal p lacks the right: read topic:{name}")
        if name not in self.values:
            raise UnknownTopicOrPartition(topic=name)
        partition = PartitionState(0, None, None, 0, ["n1"], 1)
        return Topic(name, self.ids[name], 3, False, TopicConfig(), [partition])

    async def offsets(self, name: str, partition: int) -> Any:
        self.before_offsets()
        return SimpleNamespace(log_start=self.starts[name], log_end=len(self.values[name]))

    async def principals(self) -> PrincipalList:
        return PrincipalList(1, [PrincipalInfo("p", ["all"], [], [], configured=False)])

    async def fetch(self, name: str, partition: int, offset: int, *, max_bytes: int, **_: Any) -> Any:
        self.before_fetch()
        self.asked.append(max_bytes)
        start, part = self.starts[name], self.values[name][offset : offset + 50]
        if offset < start:
            raise OffsetOutOfRange(offset, start, len(self.values[name]))

        def after(at: int) -> Iterator[tuple[int, pa.RecordBatch]]:
            for first in range(0, len(part), 20):
                yield at + first, batch(part[first : first + 20], at + first)

        return SimpleNamespace(next_offset=offset + len(part), after=after)

    async def contents(self, *_: object) -> Any:
        return SimpleNamespace(total=self.groups, positions=[GroupPosition(name, 1) for name in self.known])

    async def position(self, group: str, topic: str, partition: int) -> Any:
        return SimpleNamespace(group=group, topic=topic, partition=partition, offset=1, metadata=None)


@pytest.fixture
def store(tmp_path: Any) -> Store:
    return Store(str(tmp_path))


def made(cluster: Any, store: Store, *topics: str) -> Manifest:
    progress = Progress(lambda _: None, lambda _: None)
    return asyncio.run(back_up(cluster, store, topics, [], progress))[0]


def refused(cluster: Cluster, store: Store, words: str, *topics: str) -> None:
    """The backup is refused, and leaves no manifest that a pruning would keep in place of an older one."""
    before = store.manifests()
    with pytest.raises(CannotBackUp, match=words):
        made(cluster, store, *topics)
    assert store.manifests() == before


def records(store: Store, manifest: Manifest) -> list[str]:
    assert verify(store, manifest, lambda _: None) == []
    batches = [each for _, file in manifest.files for each in batches_of(store.read(file.path), file)]
    return [value.decode() for each in batches for value in each.column("value").to_pylist()]


def spoil(store: Store, path: str) -> None:
    """Change one byte."""
    content = bytearray(store.read(path))
    content[len(content) // 2] ^= 1
    store.write(path, bytes(content))


def numbered(count: int, name: str = "") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def test_a_topic_that_the_caller_may_not_see_any_more_is_never_left_out_silently(store: Store) -> None:
    """A cluster lists only what its caller may see, so narrower rights looked like deleted topics; with --keep-last
    three such backups removed every file.
    """
    cluster = Cluster({"jobs": numbered(9), "orders": numbered(9)})
    made(cluster, store)
    cluster.hidden = {"orders"}
    refused(cluster, store, "orders .*lacks the right: read topic:orders.*`read topic:\\*`")
    refused(cluster, store, "lack what the last one has: orders", "jobs")
    cluster.hidden = {"jobs", "orders"}
    refused(cluster, store, "jobs")


def test_a_topic_that_was_deleted_since_the_last_backup_is_told(store: Store) -> None:
    cluster = Cluster({"jobs": numbered(9), "orders": numbered(9)})
    made(cluster, store)
    del cluster.values["orders"]
    after = made(cluster, store)
    assert ([each.topic for each in after.topics], after.deleted, after.left_out) == (["jobs"], ["orders"], [])
    assert made(cluster, store).deleted == []


def test_a_topic_that_came_after_the_topics_were_listed_is_backed_up(store: Store) -> None:
    """It is one of the last backup, and is asked for by its name."""
    cluster: Any = Cluster({"jobs": numbered(9), "orders": numbered(9)})
    made(cluster, store)

    async def listed() -> list[Any]:
        return [SimpleNamespace(name="jobs")]

    cluster.topics = listed
    assert [each.topic for each in made(cluster, store).topics] == ["jobs", "orders"]


@pytest.mark.parametrize("topics", [{}, {"orders": numbered(9)}], ids=["empty", "topics of the same names"])
@pytest.mark.parametrize("named", [(), ("orders",)])
def test_a_cluster_that_began_anew_under_the_same_id_destroys_no_backups(
    store: Store, topics: dict[str, list[str]], named: tuple[str, ...]
) -> None:
    """A service goes on while a cluster is lost and another one starts: its backups pushed the good ones out."""
    cluster = Cluster({"jobs": numbered(9), "orders": numbered(9)})
    made(cluster, store)
    files = store.sizes(DATA)
    if named and not topics:
        with pytest.raises(UnknownTopicOrPartition):
            made(Cluster(topics, topic_id=8), store, *named)
    else:
        refused(Cluster(topics, topic_id=8), store, "none of the topics of the last backup", *named)
    prune(store, Keep(1, None), 0)
    assert store.sizes(DATA) == files


def test_a_backup_never_lacks_a_topic_of_the_last_one_in_its_place(store: Store, tmp_path: Path) -> None:
    """A backup of one topic was the newest: a restore took it, and `--keep-last 1` removed records of the others."""
    cluster = Cluster({"jobs": numbered(9), "orders": numbered(9)})
    made(cluster, store)
    refused(cluster, store, "lack what the last one has: jobs. Name these topics, too, or", "orders")
    assert len(made(cluster, store, "jobs", "orders").topics) == 2
    assert len(made(cluster, Store(str(tmp_path / "another")), "orders").topics) == 1
    del cluster.values["jobs"]
    assert made(cluster, store, "orders").deleted == []


def test_a_backup_without_principals_never_follows_one_with_them(store: Store) -> None:
    """A restore took it, and brought back no principal; nor could any other backup, once that one was pruned."""
    cluster: Any = Cluster({"orders": numbered(9)})
    progress = Progress(lambda _: None, lambda _: None)
    assert len(asyncio.run(back_up(cluster, store, [], [], progress, principals=True))[0].principals) == 1
    refused(cluster, store, "has principals: say --principals")
    assert len(asyncio.run(back_up(cluster, store, [], [], progress, principals=True))[0].principals) == 1


def test_a_topic_that_is_made_anew_before_its_ends_are_read_has_lost_no_records(store: Store) -> None:
    """The end of the new log was taken for that of the old one, and the backup refused: records were lost."""
    cluster = Cluster({"jobs": numbered(9), "orders": numbered(100)})
    made(cluster, store)

    def anew() -> None:
        cluster.ids["orders"], cluster.values["orders"] = 8, numbered(3, "new ")

    cluster.before_offsets = anew
    between = made(cluster, store)
    assert ([each.topic for each in between.topics], between.left_out) == (["jobs"], ["orders"])
    assert records(store, made(cluster, store)) == [*numbered(9), *numbered(3, "new ")]


@pytest.mark.parametrize(("groups", "known", "expected"), [(3, ["a"], 2), (2, ["a", "b"], 0), (0, [], 0)])
def test_positions_of_groups_that_the_caller_may_not_know_are_told(
    store: Store, groups: int, known: list[str], expected: int
) -> None:
    cluster = Cluster({"orders": numbered(9)})
    cluster.groups, cluster.known = groups, known
    backup = made(cluster, store)
    assert ([each.group for each in backup.positions], backup.positions_left_out) == (known, expected)


def test_two_histories_are_never_in_one_backup(store: Store) -> None:
    """Nodes that were started from old images have the same cluster, topic and topic_id. When their log had grown past
    the old end, a backup had records of both, and `verify` passed it.
    """
    made(Cluster({"orders": numbered(100)}), store)
    again = Cluster({"orders": [*numbered(90), *numbered(60, "other ")]})
    refused(again, store, "the record at offset 99 of orders/0 is not the one that the last backup has")
    again.values["orders"] = [*numbered(99), "other", *numbered(9)]
    refused(again, store, "the record at offset 99")
    again.values["orders"] = [*numbered(100), "other"]
    assert records(store, made(again, store)) == again.values["orders"]


def test_a_log_that_is_shorter_than_its_backup_is_another_history(store: Store) -> None:
    made(Cluster({"orders": numbered(100)}), store)
    refused(Cluster({"orders": numbered(99)}), store, "orders/0 ends at 99, and its last backup at 100")
    assert records(store, made(Cluster({"orders": numbered(100)}), store)) == numbered(100)


@pytest.mark.parametrize("count", [0, 9, 100, 150])
def test_a_topic_that_was_made_anew_under_its_name_is_backed_up_from_its_beginning(store: Store, count: int) -> None:
    """The files of the deleted one are not its records, and their end says nothing of its log."""
    cluster = Cluster({"jobs": numbered(9), "orders": numbered(100)})
    made(cluster, store)
    cluster.ids["orders"], cluster.values["orders"] = 8, numbered(count, "new ")
    after = made(cluster, store)
    assert (after.deleted, records(store, after)) == (["orders"], [*numbered(9), *numbered(count, "new ")])


@pytest.mark.parametrize("end", [9, 50, 70])
def test_records_written_after_the_ends_were_read_are_left_to_the_next_backup(store: Store, end: int) -> None:
    """Also in the answer that has the last record before the end, and in later batches of it."""
    cluster = Cluster({"orders": numbered(end)})

    def grows() -> None:
        cluster.values["orders"] = numbered(150)

    cluster.before_fetch = grows
    first = made(cluster, store)
    assert ([each.end_offset for each in first.topics[0].partitions], records(store, first)) == ([end], numbered(end))
    assert records(store, made(cluster, store)) == numbered(150)


@pytest.mark.parametrize("start", [10, 50, 99, 100, 120])
def test_a_backup_begins_where_the_log_does_that_was_trimmed_meanwhile(store: Store, start: int) -> None:
    """A first one, which has no record to compare; trimmed beyond its end, it has none."""
    cluster = Cluster({"orders": numbered(100)})

    def trims() -> None:
        cluster.values["orders"] = numbered(130)
        cluster.starts["orders"] = start

    cluster.before_fetch = trims
    backup = made(cluster, store)
    (partition,) = backup.topics[0].partitions
    assert (partition.first_offset, partition.end_offset) == (min(start, 100), 100)
    assert records(store, backup) == numbered(100)[start:]


def test_the_record_before_need_not_be_there_any_more(store: Store) -> None:
    """Retention may have dropped it since the ends were read."""
    made(Cluster({"orders": numbered(100)}), store)
    cluster = Cluster({"orders": numbered(150)})

    def trims() -> None:
        cluster.starts["orders"] = 110

    cluster.before_fetch = trims
    assert records(store, made(cluster, store)) == numbered(150)[110:]


@pytest.mark.parametrize("spoilt", [0, 1], ids=["the one before the last", "the last"])
def test_a_changed_byte_in_the_place_stops_no_later_backup(store: Store, spoilt: int) -> None:
    """Its size is right, so only what reads it notices: each later backup failed."""
    cluster = Cluster({"orders": numbered(2000)})
    made(cluster, store)
    cluster.values["orders"] += numbered(20)
    before = made(cluster, store)
    assert len(before.files) == 2
    path = before.files[spoilt][1].path
    spoil(store, path)
    cluster.values["orders"] += numbered(2000)  # enough to take in both files
    after = made(cluster, store)
    assert after.copied_again == [path]
    assert records(store, after) == cluster.values["orders"]
    cluster.values["orders"] += ["one more"]
    assert made(cluster, store).copied_again == []


def test_a_file_that_goes_while_a_backup_reads_it_is_copied_again(store: Store) -> None:
    cluster = Cluster({"orders": numbered(20)})
    (_, file), *_ = made(cluster, store).files
    cluster.values["orders"] += ["one more"]

    def goes() -> None:
        cluster.before_fetch = lambda: None
        store.remove(file.path)

    cluster.before_fetch = goes
    assert made(cluster, store).copied_again == [file.path]


def test_a_backup_that_fails_leaves_none_of_its_files_and_all_of_earlier_ones(store: Store) -> None:
    """One unreadable partition made each backup of a service fail, and each left a copy of all the others."""
    cluster: Any = Cluster({"jobs": numbered(9), "orders": numbered(9)})
    made(cluster, store)
    before, contents = store.sizes(DATA), cluster.contents
    for topic in cluster.values:
        cluster.values[topic] += numbered(5, "new ")

    async def fails(*_: object) -> Any:
        assert len(store.sizes(DATA)) == len(before) + 2, "all is copied"
        raise PermissionDenied("no")

    cluster.contents = fails
    with pytest.raises(PermissionDenied):
        made(cluster, store)
    assert store.sizes(DATA) == before
    cluster.contents = contents
    assert len(records(store, made(cluster, store))) == 28


def test_a_file_that_is_being_written_when_its_backup_fails_goes_too(store: Store) -> None:
    attempt = Attempt(store)

    def gives_up(path: str, content: Any) -> None:
        Store.write(store, path, content)
        attempt.give_up()
        Store.write(store, path, content)  # as if this thread had been slower

    store.write = gives_up  # type: ignore[method-assign]
    attempt.write(f"{DATA}/a", pa.py_buffer(b"x"))
    assert store.sizes(DATA) == {}


def test_fewer_bytes_are_asked_for_where_records_are_well_compressed() -> None:
    """An answer is unpacked as a whole: 8 MiB of equal lines are GiBs."""
    mib = 1024 * 1024
    assert next_fetch_bytes(64 * 1024, 0) == 256 * 1024
    assert next_fetch_bytes(4 * mib, 4 * mib) == FETCH_BYTES
    assert next_fetch_bytes(FETCH_BYTES, FETCH_BYTES_UNPACKED) == FETCH_BYTES
    assert next_fetch_bytes(FETCH_BYTES, FETCH_BYTES_UNPACKED + 1) == FETCH_BYTES - 1
    assert next_fetch_bytes(64 * 1024, 1024 * FETCH_BYTES_UNPACKED) == 64
    assert next_fetch_bytes(1, 2 * FETCH_BYTES_UNPACKED) == 1


def test_the_unpacked_size_of_a_fetch_decides_the_size_of_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_module, "FETCH_BYTES_UNPACKED", 1000)  # less than 50 records have
    cluster = Cluster({"orders": ["x" * 12] * 150})
    made(cluster, store)
    assert cluster.asked[0] == FETCH_BYTES_FIRST
    assert cluster.asked[0] > cluster.asked[1] > cluster.asked[2]


def test_a_manifest_that_is_removed_while_a_backup_begins_is_no_fault(store: Store) -> None:
    """It was told as "passed over: ", without a word of what."""
    cluster = Cluster({"t": ["a"]})
    older, newer = made(cluster, store), made(cluster, store)
    listed = store.manifests()
    store.forget(newer.name)
    store.manifests = lambda: listed  # type: ignore[method-assign]
    begun = begin(store, "c")
    assert (begun.previous, begun.damaged) == (older, [])
