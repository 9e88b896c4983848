"""What a restore leaves alone: topics of which one cannot be restored, settings and positions that changed since."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stockade.cli.backup import restore_command
from stockade.cli.backup.manifest import Manifest, PositionBackup
from stockade.cli.backup.restore import OPEN, CannotRestore, Manner, Restored, prepare
from stockade.cli.backup.restore_command import _told_of_a_part
from stockade.cli.backup.store import Store
from stockade.partition.errors import LeaderNotAvailable

from ...client.fake_cluster import FakeCluster
from ..conftest import Run
from .test_backup import Killed, Restoring, batch, manifest_of, restore, written

NAMES = "first", "second"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "place"))


class Topics:
    """A client of a cluster with these topics of one partition: a call is for the one that it names."""

    config = Restoring.config

    def __init__(self, first: Restoring, second: Restoring) -> None:
        self._by_name = {"first": first, "second": second}

    def __getattr__(self, call: str) -> Callable[..., Any]:
        def ask(*names: Any, **more: Any) -> Any:
            topic = next((self._by_name[name] for name in names if name in self._by_name), self._by_name["first"])
            return getattr(topic, call)(*names, **more)

        return ask


def backup_of_both(store: Store, *, first_offset: int = 0) -> Manifest:
    """Two topics of four records each, and a position in either; ``first_offset``: of the second one."""
    one = manifest_of(written(store, 0, batch(10, 20, 30, 40)))
    other = manifest_of(written(store, first_offset, batch(10, 20, 30, 40)), first=first_offset)
    topics = [
        msgspec.structs.replace(each.topics[0], topic=name) for name, each in zip(NAMES, (one, other), strict=True)
    ]
    positions = [PositionBackup("g", name, 0, first_offset + 2, None) for name in NAMES]
    return msgspec.structs.replace(one, topics=topics, positions=positions)


def restored(client: object, store: Store, manifest: Manifest, *, resume: bool = False) -> list[str]:
    return asyncio.run(restore(client, store, manifest, {name: name for name in NAMES}, Manner(resume=resume)))


def begun(second: Restoring, store: Store) -> Restoring:
    """Let it have the second topic as a restore that was cut short left it."""
    second.left = 1
    manifest = manifest_of(written(store, 0, batch(10, 20)), written(store, 2, batch(30)))
    with pytest.raises(Killed):
        asyncio.run(restore(second, store, manifest, {"t": "second"}, Manner()))
    second.left = 1000
    return second


def test_a_topic_that_cannot_be_restored_leaves_all_of_them_as_they_were(store: Store) -> None:
    """The first one was restored, without positions, before the second one was refused; nothing was said of it."""
    first, second = Restoring(), begun(Restoring(), store)
    with pytest.raises(CannotRestore, match="topic second has records already"):
        restored(Topics(first, second), store, backup_of_both(store))
    assert (first.topic_config, first.rows, first.positions) == (None, [], {})


def test_a_cluster_that_cannot_keep_offsets_is_left_as_it_was(store: Store) -> None:
    first, second = Restoring(), Restoring()
    first.level = 1
    with pytest.raises(CannotRestore, match=r"second/0 is to begin at offset 5, .* or say --renumber"):
        restored(Topics(first, second), store, backup_of_both(store, first_offset=5))
    assert (first.topic_config, second.topic_config) == (None, None)


def test_a_complete_topic_has_its_positions_also_if_the_next_one_fails(store: Store) -> None:
    first, second = Restoring(), Restoring(left=0)
    client = Topics(first, second)
    with pytest.raises(Killed):
        restored(client, store, backup_of_both(store))
    assert (first.positions, second.positions) == ({"g": 2}, {})
    second.left = 1
    assert restored(client, store, backup_of_both(store), resume=True) == list(NAMES)
    assert second.positions == {"g": 2}


def test_a_restored_topic_has_another_id_than_in_the_backup(store: Store) -> None:
    """Two new clusters whose first topic has one name give it one id. A reader of the lost one that had read beyond the
    backup, as a query of Spark from its checkpoint, went on in the restored topic once that had grown past it: what was
    written there in place of the records that are gone was never read.
    """
    first = Restoring()
    first.topic_id = 7
    manifest = backup_of_both(store)
    assert restored(Topics(first, Restoring()), store, manifest) == list(NAMES)
    assert (manifest.topics[0].topic_id, first.topic_id) == (7, 8)
    assert len(first.rows) > 0


@pytest.mark.parametrize("resume", [False, True])
def test_a_topic_that_was_to_get_another_id_gets_it_in_the_next_attempt(store: Store, resume: bool) -> None:
    first, second, manifest = Restoring(), Restoring(), backup_of_both(store)
    first.topic_id, delete = 7, first.delete_topic

    async def cut_short(name: str, **_: Any) -> None:
        first.delete_topic = delete  # type: ignore[method-assign]
        raise LeaderNotAvailable(retry_after_ms=1)

    first.delete_topic = cut_short  # type: ignore[method-assign]
    with pytest.raises(LeaderNotAvailable):
        restored(Topics(first, second), store, manifest)
    assert restored(Topics(first, second), store, manifest, resume=resume) == list(NAMES)
    assert first.topic_id == 8


def test_a_topic_with_the_id_of_the_backup_stays_when_others_have_written_to_it(store: Store) -> None:
    """The delete would lose what they were acknowledged."""
    first, manifest = Restoring(), backup_of_both(store)
    first.topic_id, create = 7, first.create_topic

    async def and_write(name: str, **more: Any) -> Any:
        first.rows.append(batch(1))
        return await create(name, **more)

    first.create_topic = and_write  # type: ignore[method-assign]
    with pytest.raises(CannotRestore, match="another client writes to first"):
        restored(Topics(first, Restoring()), store, manifest)
    assert (first.topic_id, len(first.rows)) == (7, 1)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("use", ["writer", "group"])
def test_an_empty_topic_with_the_id_of_the_backup_stays_when_others_use_it(
    store: Store, use: str, resume: bool
) -> None:
    """It was deleted and created again, with the grants and positions in it."""
    first, manifest = Restoring(), backup_of_both(store)
    first.topic_id = 7
    first.created = first.topic_config = msgspec.structs.replace(manifest.topics[0].config, **OPEN)
    if use == "writer":
        first.holder_mode = "Exclusive"
    else:
        first.positions = {"g": 0}
    with pytest.raises(CannotRestore, match="topic first is there already, with the id that it has in the backup"):
        restored(Topics(first, Restoring()), store, manifest, resume=resume)
    assert (first.topic_id, first.is_sealed) == (7, False)


def test_a_topic_with_the_id_of_the_backup_stays_when_a_writer_takes_it_meanwhile(store: Store) -> None:
    first, manifest = Restoring(), backup_of_both(store)
    first.topic_id, create = 7, first.create_topic

    async def and_hold(name: str, **more: Any) -> Any:
        first.holder_mode = "Exclusive"
        return await create(name, **more)

    first.create_topic = and_hold  # type: ignore[method-assign]
    with pytest.raises(CannotRestore, match="another client holds first, which is sealed now"):
        restored(Topics(first, Restoring()), store, manifest)
    assert first.topic_id == 7


@pytest.mark.parametrize("offset", [0, 1, 4])
def test_a_resumed_restore_leaves_a_group_where_it_is(store: Store, offset: int) -> None:
    """A group that had gone on was set back to where it was in the backup, and read its records twice."""
    first = Restoring()
    client, manifest = Topics(first, Restoring()), backup_of_both(store)
    restored(client, store, manifest)
    first.positions["g"] = offset
    restored(client, store, manifest, resume=True)
    assert first.positions == {"g": offset}


def test_a_resumed_restore_leaves_the_settings_of_a_topic_that_is_complete(store: Store) -> None:
    """`stockade topics alter` after a restore was undone."""
    first = Restoring()
    client, manifest = Topics(first, Restoring()), backup_of_both(store)
    restored(client, store, manifest)
    altered = first.topic_config = msgspec.structs.replace(manifest.topics[0].config, retention_ms=5_000_000)
    assert restored(client, store, manifest, resume=True) == list(NAMES)
    assert first.topic_config == altered


def test_a_topic_of_other_settings_that_lacks_records_is_none_that_a_restore_left(store: Store) -> None:
    first, second = Restoring(), begun(Restoring(), store)
    assert second.topic_config is not None
    second.topic_config = msgspec.structs.replace(second.topic_config, max_batch_bytes=4096)
    with pytest.raises(CannotRestore, match="topic second is there already, with other settings"):
        restored(Topics(first, second), store, backup_of_both(store), resume=True)
    assert first.topic_config is None


def test_settings_that_change_while_a_topic_is_restored_are_told_and_stay(store: Store) -> None:
    first, second = Restoring(), Restoring()
    manifest = backup_of_both(store)
    client: Any = Topics(first, second)

    def alter(records: int) -> None:
        assert first.topic_config is not None
        first.topic_config = msgspec.structs.replace(first.topic_config, retention_ms=6)

    async def work() -> None:
        topic, _ = await prepare(client, store, manifest, {name: name for name in NAMES}, Manner())
        await topic.run(alter)

    with pytest.raises(CannotRestore, match="others changed the settings of first before it was complete"):
        asyncio.run(work())
    assert (first.topic_config.retention_ms if first.topic_config else None, sum(map(len, first.rows))) == (6, 4)
    altered = first.topic_config
    assert restored(client, store, manifest, resume=True) == list(NAMES)
    assert (first.topic_config, first.positions) == (altered, {"g": 2})


def test_a_restore_that_is_refused_makes_no_principals(
    run: Run, cluster: FakeCluster, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They came back first, and then a topic was refused with the exit code of what changes nothing."""
    made: list[str] = []

    async def make(*_: object) -> None:
        made.append("principal")

    monkeypatch.setattr(restore_command, "restore_principals", make)
    store.add(backup_of_both(store))
    cluster.create("second", partitions=2)
    told = run("backup", "restore", store.url, "--principals")
    assert (told.exit_code, made, list(cluster.topics)) == (1, [], ["second"])
    assert "topic second is there already: choose another name with --topic second --as NAME" in told.stderr


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("order/0=10", "order/0: no topic order is to be restored"),
        ("p1/0=10", "p1/0: no topic p1 is to be restored"),
        ("second/0=10", "second/0: no topic second is to be restored"),
        ("first/9=10", "first/9: the topic has 1 partition in the backup"),
    ],
    ids=["misspelt", "the new name", "not chosen", "no such partition"],
)
def test_an_offset_to_stop_at_is_never_ignored(run: Run, store: Store, target: str, fault: str) -> None:
    """A restore with a target that was misspelt restored all records."""
    store.add(backup_of_both(store))
    words = "--topic", "first", "--as", "p1", "--until-offset", target
    told = run("backup", "restore", store.url, *words)
    assert (told.exit_code, fault in told.stderr) == (2, True)
    told = run("backup", "restore", store.url, *words, *("--until-offset", "first/0=1") * 2, "--until-offset", "x/3=1")
    assert (told.exit_code, fault in told.stderr) == (2, True)
    assert "first/0 is given twice" in told.stderr
    assert "x/3: no topic x" in told.stderr


def test_a_restore_that_is_cut_short_tells_what_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[Restored] = []

    def fails(complete: list[Restored]) -> tuple[str, str]:
        with pytest.raises(LeaderNotAvailable), _told_of_a_part(done, "table"):
            done.extend(complete)
            raise LeaderNotAvailable
        said = capsys.readouterr()
        return said.out, said.err

    assert fails([]) == ("", "cut short, with 0 topics complete: --resume goes on\n")
    table, said = fails([Restored("t", 0, 4, 4, 0), Restored("t", 1, 4, 4, 0)])
    assert said == "cut short, with 1 topic complete: --resume goes on\n"
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [["t", "0", "4"], ["t", "1", "4"]]
