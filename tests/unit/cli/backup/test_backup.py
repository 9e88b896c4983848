"""Parts of backups that need no cluster: manifests, gaps, damage, batches in other sizes, appends without an answer."""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner

from stockade.cli.backup.create import _principals
from stockade.cli.backup.files import FileWriter
from stockade.cli.backup.manifest import (
    Damaged,
    DataFile,
    Manifest,
    PartitionBackup,
    PositionBackup,
    PrincipalBackup,
    TopicBackup,
    decode,
    encode,
)
from stockade.cli.backup.restore import (
    NEVER,
    CannotRestore,
    Manner,
    Until,
    _within,
    append_once,
    check_principals,
    merge,
    prepare,
    restore_principals,
    size_to_restore,
    split,
)
from stockade.cli.backup.store import Store
from stockade.cli.backup.verify import batches_of, gaps, verify
from stockade.cli.main import main
from stockade.client.config import ClientConfig
from stockade.partition.api.principals import (
    CallerInfo,
    PrincipalInfo,
    PrincipalList,
    PrincipalQuota,
    PrincipalTokenInfo,
)
from stockade.partition.api.topics import BATCH_BYTES_MAX, TopicConfig
from stockade.partition.errors import (
    LeaderNotAvailable,
    NotFound,
    OffsetMismatch,
    PlanChanged,
    RequestTimedOut,
    TopicAlreadyExists,
    TopicSealed,
    UnknownTopicOrPartition,
)
from stockade.partition.places.place import CannotReach
from stockade.partition.records.batch import SCHEMA, STREAM_END, STREAM_START, batch_from_stream, decode_batch


def batch(*times: int, value: bytes = b"v") -> pa.RecordBatch:
    columns = [
        pa.nulls(len(times), pa.binary()),
        pa.array([value] * len(times), pa.binary()),
        pa.array(times, SCHEMA.field("timestamp").type),
        pa.nulls(len(times), SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def written(store: Store, first: int, *batches: pa.RecordBatch) -> DataFile:
    writer = FileWriter(first)
    for each in batches:
        writer.add(each)
    content, end = writer.close().to_pybytes(), first + sum(map(len, batches))
    assert writer.times is not None
    path = f"data/7-t/0/{first:020d}-{end:020d}.arrow"
    store.write(path, content)
    return DataFile(path, first, end, len(content), hashlib.sha256(content).hexdigest(), *writer.times)


def manifest_of(*files: DataFile, first: int = 0, end: int | None = None) -> Manifest:
    partition = PartitionBackup(0, first, files[-1].end_offset if end is None else end, 3, list(files))
    topic = TopicBackup("t", 7, 3, False, TopicConfig(retention_ms=5), [partition])
    return Manifest("20260101T000000.000000Z", "c", "1", 1, 2, 3, [topic], [], [])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "place"))


def test_a_manifest_comes_back_and_the_newest_one_counts(store: Store) -> None:
    manifest = manifest_of(written(store, 0, batch(5, 3), batch(4)))
    store.add(manifest)
    older = msgspec.structs.replace(manifest, name="20250101T000000.000000Z")
    store.add(older)
    assert store.manifests() == [older.name, manifest.name]
    assert store.manifest(None) == manifest
    assert store.manifest(older.name) == older
    assert (manifest.records, manifest.files[0][1].timestamp_ms_min, manifest.files[0][1].timestamp_ms_max) == (3, 3, 5)
    assert verify(store, manifest, lambda _: None) == []


@pytest.mark.parametrize("content", [b"{}", b"[]", b"no json", b'{"version": 1}', b'{"version": 2}'])
def test_bytes_that_are_no_manifest_of_this_version_are_damage(content: bytes) -> None:
    with pytest.raises(Damaged, match="manifest x"):
        decode(content, "x")


def test_a_manifest_with_more_fields_is_read(store: Store) -> None:
    manifest = manifest_of(written(store, 0, batch(1)))
    content: dict[str, Any] = msgspec.json.decode(encode(manifest)) | {"later": 1}
    assert decode(msgspec.json.encode(content), "x") == manifest


def test_a_place_without_a_backup_and_one_that_cannot_be_reached_are_told_apart(store: Store, tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="no backup"):
        store.manifest(None)
    with pytest.raises(Damaged, match="missing"):
        store.manifest("x")
    with pytest.raises(CannotReach, match="nowhere://x"):
        Store("nowhere://x")
    (tmp_path / "file").touch()
    with pytest.raises(CannotReach):
        Store(str(tmp_path / "file")).write("a", b"")


@pytest.mark.parametrize(
    ("first", "end", "ranges", "count"),
    [
        (0, 10, [(0, 5), (5, 10)], 0),
        (3, 10, [(0, 5), (5, 10)], 0),  # the first file has records that were dropped since
        (3, 3, [], 0),
        (0, 10, [(0, 5), (6, 10)], 1),
        (0, 10, [(1, 10)], 1),
        (0, 10, [(0, 5)], 1),
        (0, 10, [], 1),
    ],
)
def test_records_that_no_file_has_are_noticed(first: int, end: int, ranges: list[tuple[int, int]], count: int) -> None:
    files = [DataFile("f", *each, 1, "", 0, 0) for each in ranges]
    assert len(list(gaps("t/0", PartitionBackup(0, first, end, 0, files)))) == count


@pytest.mark.parametrize("change", [{"bytes": 1}, {"sha256": "0"}, {"end_offset": 9}])
def test_a_file_that_is_not_as_its_manifest_says_is_damage(store: Store, change: dict[str, Any]) -> None:
    file = written(store, 0, batch(1, 2))
    content = store.read(file.path)
    assert len(list(batches_of(content, file))) == 1
    with pytest.raises(Damaged, match=file.path):
        batches_of(content, msgspec.structs.replace(file, **change))


def test_times_that_are_not_as_the_manifest_says_are_a_fault(store: Store) -> None:
    file = msgspec.structs.replace(written(store, 0, batch(1, 2)), timestamp_ms_max=1)
    (fault,) = verify(store, manifest_of(file), lambda _: None)
    assert "other times" in fault


def test_rows_are_cut_merged_and_split_without_changing_them() -> None:
    config = TopicConfig(max_batch_bytes=4096)
    batches = [batch(*range(number, number + 10), value=b"x" * 20) for number in range(0, 1000, 10)]
    whole = pa.Table.from_batches(batches)
    within = list(_within(batches, 100, 105, 995))
    assert pa.Table.from_batches(within).equals(whole.slice(5, 890))
    merged = list(merge(iter(batches), config))
    assert 1 < len(merged) < len(batches)
    assert pa.Table.from_batches(merged).equals(whole)
    parts = list(split(pa.concat_batches(batches), config))
    assert pa.Table.from_batches(parts).equals(whole)
    assert all(pa.ipc.get_record_batch_size(each) <= config.max_batch_bytes for each in parts)


class Answers:
    """A client whose appends end as it is told; ``present``: what the log has at the offset of the append then."""

    def __init__(self, *answers: Exception | None, present: pa.RecordBatch) -> None:
        self.present = present
        self.config = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=1)
        self.answers = list(answers)
        self.asked: list[int] = []

    async def append(self, topic: str, partition: int, message: bytes, **more: Any) -> None:
        self.asked.append(more["conditions"].if_log_end)
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer

    async def fetch(self, topic: str, partition: int, offset: int, **_: Any) -> Any:
        return SimpleNamespace(after=lambda at: iter([(at, self.present.slice(at - 40))]))


APPENDED = batch(1, 2)


def appended(*answers: Exception | None, present: pa.RecordBatch = APPENDED) -> list[int]:
    """At which offset a batch was appended, by attempt; ``answers``: how these ended."""
    client: Any = Answers(*answers, present=present)
    asyncio.run(append_once(client, "t", 0, 7, APPENDED, 40))
    asked: list[int] = client.asked
    return asked


def mismatch(log_end: int) -> OffsetMismatch:
    return OffsetMismatch(log_end=log_end)


def test_an_append_without_an_answer_is_stored_once() -> None:
    assert appended(None) == [40]
    assert appended(LeaderNotAvailable(retry_after_ms=1), None) == [40, 40]
    assert appended(RequestTimedOut(), None) == [40, 40]  # it was not stored
    assert appended(RequestTimedOut(), mismatch(42)) == [40, 40]  # it was


@pytest.mark.parametrize("answers", [[mismatch(42)], [mismatch(39)], [RequestTimedOut(), mismatch(43)]])
def test_another_writer_ends_a_restore(answers: list[Exception]) -> None:
    with pytest.raises(CannotRestore, match="another client writes"):
        appended(*answers)


@pytest.mark.parametrize("error", [LeaderNotAvailable(retry_after_ms=1), RequestTimedOut()])
@pytest.mark.parametrize("present", [batch(1, 3), batch(1, 2, value=b"of another")])
def test_as_many_records_of_another_writer_are_never_taken_for_the_batch(
    error: Exception, present: pa.RecordBatch
) -> None:
    """After an attempt that failed they counted as stored by it, and those of the backup were left out."""
    with pytest.raises(CannotRestore, match="another client writes"):
        appended(error, mismatch(42), present=present)


def test_a_refusal_that_lasts_ends_a_restore() -> None:
    with pytest.raises(TopicSealed):
        appended(TopicSealed(log_end=40))


class Killed(Exception):
    """The command ends in the middle of its work."""


class Restoring:
    """A client of a cluster that takes one topic with one partition, by the checks of a node. ``left``: so many more
    appends before the command is killed.
    """

    config = ClientConfig()

    def __init__(self, left: int = 1000) -> None:
        self.created: TopicConfig | None = None
        """What the topic was created with, which a repeated creation has to name."""
        self.topic_config: TopicConfig | None = None
        self.rows: list[pa.RecordBatch] = []
        self.positions: dict[str, int] = {}
        self.left = left
        self.level = 2
        self.topic_id, self.is_sealed = 8, False
        self.holder_mode: str | None = None

    async def connect(self) -> Any:
        return SimpleNamespace(feature_level=self.level)

    async def create_topic(self, name: str, *, config: TopicConfig, **_: Any) -> Any:
        if self.created not in (None, config):
            raise TopicAlreadyExists
        self.created, self.topic_config = config, self.topic_config or config
        return SimpleNamespace(topic_id=self.topic_id, config=self.topic_config)

    async def delete_topic(self, name: str, *, topic_id: int, if_grants: Sequence[str]) -> None:
        assert (topic_id, self.rows, self.is_sealed, if_grants) == (self.topic_id, [], True, ())
        if self.holder_mode is not None:
            raise PlanChanged("other grants would end than those that the order names")
        self.created = self.topic_config = None
        self.topic_id, self.is_sealed = self.topic_id + 1, False

    async def topic(self, name: str) -> Any:
        if self.topic_config is None:
            raise UnknownTopicOrPartition(topic=name)
        partitions = [SimpleNamespace(partition=0, slot_mode=self.holder_mode)]
        return SimpleNamespace(topic_id=self.topic_id, partitions=partitions, config=self.topic_config)

    async def contents(self, name: str, partition: int, most: int) -> Any:
        return SimpleNamespace(total=len(self.positions))

    async def fetch(self, topic: str, partition: int, offset: int, **_: Any) -> Any:
        row = pa.Table.from_batches(self.rows).slice(offset, 1).to_batches()[0]
        return SimpleNamespace(after=lambda at: iter([(at, row)]))

    async def change_topic(self, name: str, *, config: dict[str, Any] | None = None, seal: bool = False) -> None:
        self.is_sealed = seal
        assert self.topic_config is not None
        self.topic_config = msgspec.structs.replace(self.topic_config, **(config or {}))

    async def offsets(self, name: str, partition: int) -> Any:
        return SimpleNamespace(log_start=0, log_end=sum(map(len, self.rows)))

    async def position(self, group: str, topic: str, partition: int) -> Any:
        return SimpleNamespace(offset=self.positions.get(group))

    async def commit_position(self, group: str, topic: str, partition: int, offset: int, **_: Any) -> None:
        self.positions[group] = offset

    async def append(self, topic: str, partition: int, message: bytes, **_: Any) -> None:
        if not self.left:
            raise Killed
        self.left -= 1
        assert self.topic_config is not None
        body, limit = STREAM_START + message + STREAM_END, self.topic_config.max_batch_bytes
        self.rows.append(decode_batch(batch_from_stream(body, now_ms=1, batch_bytes_max=limit).message))


async def restore(client: Any, store: Store, manifest: Manifest, names: dict[str, str], manner: Manner) -> list[str]:
    """The topics that are complete, as the command restores them."""
    done = []
    for topic in await prepare(client, store, manifest, names, manner):
        done += await topic.run(lambda _: None)
    return [each.topic for each in done]


@pytest.mark.parametrize(
    "size",
    [pytest.param(5000, id="larger than its topic takes today"), pytest.param(BATCH_BYTES_MAX - 64, id="compressed")],
)
def test_a_record_comes_back_that_its_topic_would_not_take_today(store: Store, size: int) -> None:
    """Compressed, its buffers have up to 16 MiB: with what is around them it is too large for a message that is not."""
    large, own = batch(1, value=bytes(size)), TopicConfig(max_batch_bytes=4096)
    manifest = manifest_of(written(store, 0, batch(1, 2), large, batch(3)))
    manifest.topics[0] = msgspec.structs.replace(manifest.topics[0], config=own)
    client: Any = Restoring()
    asyncio.run(restore(client, store, manifest, {"t": "u"}, Manner()))
    assert pa.Table.from_batches(client.rows).equals(pa.Table.from_batches([batch(1, 2), large, batch(3)]))
    assert client.topic_config == own


def cut_short(store: Store, until: Until = NEVER) -> tuple[Manifest, Any]:
    """A backup of three files, each an append, and a cluster that has the records of the first one."""
    files = (batch(10, 20, value=b"first"), batch(30, 40, value=b"second"), batch(15, 50, value=b"third"))
    parts = [written(store, 2 * number, each) for number, each in enumerate(files)]
    manifest, client = manifest_of(*parts), Restoring(left=1)
    if until == NEVER:
        with pytest.raises(Killed):
            restored(client, store, manifest, until=until)
    else:
        restored(client, store, manifest, until=until)
    client.left = 1000
    return manifest, client


def restored(client: Any, store: Store, manifest: Manifest, *, until: Until = NEVER, resume: bool = False) -> list[int]:
    """The times of the records that the topic has then."""
    asyncio.run(restore(client, store, manifest, {"t": "u"}, Manner(until, resume=resume)))
    times = pa.Table.from_batches(client.rows).column("timestamp").cast(pa.int64()).to_pylist()
    assert isinstance(times, list)
    return times


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_resumed_restore_never_takes_the_records_of_others_for_those_of_the_backup(store: Store, count: int) -> None:
    """Before it is complete a topic takes writes without a fence; as many records of the backup were left out."""
    manifest, client = cut_short(store)
    client.rows.append(batch(*range(count), value=b"of a writer that came too early"))
    with pytest.raises(CannotRestore, match=rf"offset {min(count + 2, 6) - 1} of u/0 is not the one of the backup"):
        restored(client, store, manifest, resume=True)
    assert len(client.rows) == 2


def test_a_resumed_restore_goes_on_where_it_was_and_leaves_what_is_complete(store: Store) -> None:
    manifest, client = cut_short(store)
    whole = [10, 20, 30, 40, 15, 50]
    assert restored(client, store, manifest, resume=True) == whole
    assert restored(client, store, manifest, resume=True) == whole
    client.rows.append(batch(60))  # by a writer, and it is complete
    assert restored(client, store, manifest, resume=True) == [*whole, 60]


def test_a_resumed_restore_that_was_complete_up_to_a_time_stores_nothing_after_later_writes(store: Store) -> None:
    """The record of time 15 comes after one that is too late: it is none of those that are restored."""
    until = Until(timestamp_ms=30)
    manifest, client = cut_short(store, until)
    assert restored(client, store, manifest, until=until, resume=True) == [10, 20]
    client.rows.append(batch(60, 61))
    assert restored(client, store, manifest, until=until, resume=True) == [10, 20, 60, 61]
    client.rows = [batch(10), batch(60, 61)]
    with pytest.raises(CannotRestore, match="offset 1 of u/0"):
        restored(client, store, manifest, until=until, resume=True)


def test_a_topic_with_records_is_left_as_it_is_unless_a_restore_is_resumed(store: Store) -> None:
    """A cluster takes the creation of a topic with the same configuration for a repeated one."""
    manifest, client = cut_short(store)
    with pytest.raises(CannotRestore, match="topic u has records already"):
        restored(client, store, manifest)
    assert sum(map(len, client.rows)) == 2


@pytest.mark.parametrize("missing", [0, 1, 2], ids=["the first", "one in the middle", "the last"])
def test_a_backup_that_lacks_a_file_is_not_restored(store: Store, missing: int) -> None:
    """What follows would come at other offsets than it had; no topic is created."""
    files = [written(store, 2 * number, batch(number, number)) for number in range(3)]
    manifest, client = manifest_of(*(file for file in files if file != files[missing]), end=6), Restoring()
    with pytest.raises(Damaged, match="t/0: "):
        restored(client, store, manifest)
    assert (client.topic_config, client.rows) == (None, [])


@pytest.mark.parametrize(
    ("manner", "expected"),
    [
        (Manner(), {"behind": 1, "within": 3, "at the end": 4, "beyond": 4}),
        (Manner(Until(offsets={("t", 0): 2})), {"behind": 1, "within": 2, "at the end": 2, "beyond": 2}),
        (Manner(Until(timestamp_ms=30)), {"behind": 1, "within": 2, "at the end": 2, "beyond": 2}),
    ],
    ids=["all of it", "up to an offset", "up to a time"],
)
def test_a_group_goes_on_where_the_restored_log_ends_at_the_latest(
    store: Store, manner: Manner, expected: dict[str, int]
) -> None:
    """Positions are read after the ends: one beyond the log would pass over the next records that are written."""
    offsets = {"behind": 1, "within": 3, "at the end": 4, "beyond": 9}
    positions = [PositionBackup(group, "t", 0, offset, None) for group, offset in offsets.items()]
    manifest = msgspec.structs.replace(manifest_of(written(store, 0, batch(10, 20, 30, 40))), positions=positions)
    client: Any = Restoring()
    asyncio.run(restore(client, store, manifest, {"t": "u"}, manner))
    assert client.positions == expected


def test_a_group_goes_on_at_the_same_record_in_a_renumbered_log(store: Store) -> None:
    offsets = {"before its start": 1, "within": 3, "beyond": 9}
    positions = [PositionBackup(group, "t", 0, offset, None) for group, offset in offsets.items()]
    manifest = manifest_of(written(store, 0, batch(10, 20, 30, 40)), first=2)
    client: Any = Restoring()
    manifest = msgspec.structs.replace(manifest, positions=positions)
    asyncio.run(restore(client, store, manifest, {"t": "u"}, Manner(renumber=True)))
    assert client.positions == {"before its start": 0, "within": 1, "beyond": 2}


def test_the_number_of_records_to_restore_is_known_before() -> None:
    manifest = manifest_of(DataFile("f", 0, 10, 1, "", 0, 0), first=4)
    assert size_to_restore(manifest, {"t": "u"}, Until()) == 6
    assert size_to_restore(manifest, {"t": "u"}, Until(offsets={("t", 0): 7})) == 3
    assert size_to_restore(manifest, {"t": "u"}, Until(offsets={("t", 0): 1})) == 0
    assert size_to_restore(manifest, {}, Until()) == 0


class Principals:
    """A client of a cluster that has these principals."""

    def __init__(self, *known: PrincipalInfo, is_open: bool = False) -> None:
        self.known = {each.principal: each for each in known}
        self.is_open = is_open

    async def caller(self) -> CallerInfo:
        return CallerInfo(None, [], self.is_open)

    async def principals(self) -> PrincipalList:
        return PrincipalList(len(self.known), list(self.known.values()))

    async def principal(self, name: str) -> PrincipalInfo:
        if name not in self.known:
            raise NotFound(what="principal")
        return self.known[name]

    async def put_principal(self, name: str, rights: list[str], **more: Any) -> None:
        self.known[name] = PrincipalInfo(name, rights, more["certificates"], [], False, more["subjects"], more["quota"])


async def principals_made(client: Any, manifest: Manifest) -> list[PrincipalBackup]:
    return [each async for each in restore_principals(client, manifest)]


def test_principals_come_back_with_their_rights_and_without_tokens() -> None:
    token, quota = PrincipalTokenInfo("id", None), PrincipalQuota(topics=3)
    billing = PrincipalInfo("billing", ["produce topic:b-*"], ["CN:b"], [token], False, ["i:s"], quota)
    root = PrincipalInfo("root", ["all"], [], [token], True)  # of node.toml
    before: Any = Principals(billing, root)
    kept = asyncio.run(_principals(before))
    assert [(each.principal, each.tokens) for each in kept] == [("billing", 1)]
    manifest = msgspec.structs.replace(manifest_of(DataFile("f", 0, 2, 1, "", 0, 0)), principals=kept)
    manifest = decode(encode(manifest), "x")
    after: Any = Principals(PrincipalInfo("admin", ["all"], [], [token], False))
    assert asyncio.run(principals_made(after, manifest)) == kept
    assert after.known["billing"] == msgspec.structs.replace(billing, tokens=[])
    assert asyncio.run(principals_made(after, manifest)) == []  # what is there stays as it is


def test_principals_never_lock_out_the_one_who_restores_them() -> None:
    cluster: Any = Principals(is_open=True)
    with pytest.raises(CannotRestore, match="first make one for yourself"):
        asyncio.run(check_principals(cluster))


def test_a_list_of_a_place_without_backups_says_so_and_fails(tmp_path: Path) -> None:
    place = str(tmp_path / "nothing")
    done = CliRunner().invoke(main, ["backup", "list", place])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"Error: there is no backup at {place}\n"
    told = CliRunner().invoke(main, ["backup", "list", place, "--json"])
    assert (told.exit_code, told.stdout) == (1, "[]\n")
    (tmp_path / "torn" / "manifests").mkdir(parents=True)
    (tmp_path / "torn" / "manifests" / "20260101T000000000Z-0a.json").write_text("{")
    torn = CliRunner().invoke(main, ["backup", "list", str(tmp_path / "torn")])
    assert (torn.exit_code, torn.stdout) == (1, "")
    assert torn.stderr.endswith(f"Error: no backup at {tmp_path / 'torn'} can be read\n")


COMMANDS = [["create"], ["list"], ["verify"], ["prune", "--keep-last", "1"], ["restore"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
def test_credentials_in_the_url_of_a_place_are_refused_and_never_printed(command: list[str]) -> None:
    """The error of a store quoted the URL, and logs kept the secret."""
    place = "s3://KEY:TOPSECRET@bucket/x?made_up=1"
    done = CliRunner().invoke(main, ["backup", command[0], place, *command[1:]])
    assert done.exit_code == 2
    assert "Invalid value for 'PLACE': no credentials in the URL" in done.stderr
    assert "TOPSECRET" not in done.output


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
def test_a_place_without_a_name_is_not_taken_for_the_current_folder(command: list[str]) -> None:
    """A variable of a script that is not set: the backup went into the folder in which it ran."""
    done = CliRunner().invoke(main, ["backup", command[0], "", *command[1:]])
    assert done.exit_code == 2
    assert "Invalid value for 'PLACE': a folder, or a URL such as s3://BUCKET/PATH" in done.stderr


def test_a_place_that_has_no_backup_cannot_be_pruned(tmp_path: Path) -> None:
    """A name that is misspelt looked like a place where nothing is old."""
    done = CliRunner().invoke(main, ["backup", "prune", str(tmp_path / "misspelt"), "--keep-last", "1"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"Error: there is no backup at {tmp_path / 'misspelt'}\n"
