"""Checkpoints of a partition that has stages: their bytes are files of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from disk_calls import recorded

from stockade.partition.commands import (
    Appended,
    AppendStage,
    ChangeStages,
    InstallProducer,
    PutStage,
    Staged,
    encode_command,
)
from stockade.partition.log.image import ImageDamaged

from ..driver import NAMED
from ..log.test_descriptors import no_descriptor_left
from .test_stored_machine import Partition, append, cut_short, flip, new_machine


def put(name: str, value: bytes) -> PutStage:
    batch = append(None, value, 1, 0)
    return PutStage(name, name, batch.message, 1, batch.crc, batch.max_timestamp_ms, 1000)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Three stages: one appended, one kept, one as it came; and a batch."""
    found = Partition(tmp_path / "files")
    found.apply(InstallProducer(NAMED, 0))
    for name in "abc":
        found.apply(put(name, b"x" * 5000))
    found.append(None)
    found.apply(AppendStage("a", 5))
    found.apply(ChangeStages(["b"], [], NAMED, 0))
    return found


def stage_files(partition: Partition) -> list[Path]:
    return sorted(partition.directory.glob("*.stage"))


def test_a_restart_has_every_stage_and_every_note_and_can_append_them(partition: Partition) -> None:
    image = partition.checkpoint()
    assert len(image.state) < 2000, "the bytes of stages are not in the state"
    assert len(stage_files(partition)) == 2
    again = partition.restarted(image, len(partition.commands))
    assert again.capture().state == image.state
    duplicate, stored = (again.apply(9, 1, encode_command(AppendStage(name, 5))) for name in "ab")
    assert isinstance(duplicate, Appended)
    assert isinstance(stored, Appended)
    assert (duplicate.base_offset, duplicate.duplicate) == (1, True)
    assert (stored.base_offset, stored.duplicate) == (2, False)
    again.log.close()


def test_a_stage_put_after_a_restart_overwrites_no_file_of_those_before(partition: Partition) -> None:
    partition.apply(ChangeStages([], ["a"], NAMED, 0))
    again = partition.restarted(partition.checkpoint(), len(partition.commands))
    assert again.apply(9, 1, encode_command(put("d", b"4"))) == Staged(True)
    for name, value in (("c", b"x" * 5000), ("d", b"4")):
        stored = again.apply(9, 1, encode_command(AppendStage(name, 5)))
        assert isinstance(stored, Appended), stored
        (message,) = again.log.read(stored.base_offset or 0, 1).messages()
        assert message == put(name, value).message
    again.log.close()


def test_stages_changed_after_the_checkpoint_are_restored_from_the_log(partition: Partition) -> None:
    image, applied = partition.checkpoint(), len(partition.commands)
    partition.apply(put("d", b"4"))
    partition.apply(AppendStage("b", 5))
    partition.apply(ChangeStages([], ["c"], NAMED, 0))
    again = partition.restarted(image, applied)
    assert again.capture().state == partition.stored.capture().state
    assert [file.name for file in again.capture().files if file.name.endswith(".stage")] == [f"{3:020d}.stage"]
    again.log.close()


def test_the_file_of_a_stage_is_removed_once_a_checkpoint_without_it_is_durable(partition: Partition) -> None:
    partition.checkpoint()
    before = stage_files(partition)
    partition.apply(AppendStage("b", 5))
    assert partition.stored.reclaimable >= 5000
    image = partition.stored.capture()
    image.sync()
    assert stage_files(partition) == before
    image.stored()
    assert stage_files(partition) == before[1:]
    assert partition.stored.reclaimable == 0


def test_a_checkpoints_sync_covers_the_log_and_every_stage_and_then_their_names(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = partition.stored.capture()
    files = [partition.directory / file.name for file in image.files]
    stages = [path for path in files if path.suffix == ".stage"]
    calls = recorded(monkeypatch)
    image.sync()
    synced = [path for _, path in calls]
    assert set(files) <= set(synced)
    assert len(stages) == 2
    assert synced[-3:] == [*stages, partition.directory]


@pytest.mark.parametrize("harm", [cut_short, Path.unlink])
def test_a_checkpoint_without_the_bytes_of_a_stage_is_refused(
    partition: Partition, harm: Callable[[Path], None]
) -> None:
    image = partition.checkpoint()
    harm(stage_files(partition)[0])
    for check in (new_machine().inspect, new_machine().restore):
        with pytest.raises(ImageDamaged):
            check(partition.directory, image.state, image.files)


def test_a_flipped_bit_of_a_stage_is_found_by_inspection_and_stops_its_append(partition: Partition) -> None:
    image = partition.checkpoint()
    flip(stage_files(partition)[0])
    with pytest.raises(ImageDamaged, match="stage b"):
        new_machine().inspect(partition.directory, image.state, image.files)
    with pytest.raises(OSError, match="stage b"):
        partition.apply(AppendStage("b", 5))


def test_stages_are_stored_read_and_inspected_without_a_free_descriptor(partition: Partition) -> None:
    """A lack of descriptors is no broken disk: those that are held back serve stages, too."""
    with no_descriptor_left(16) as use_up:
        image = partition.stored.capture()
        use_up()
        image.sync()
        use_up()
        assert isinstance(partition.apply(AppendStage("b", 5)), Appended)
        use_up()
        new_machine().inspect(partition.directory, image.state, image.files)
        use_up()
        again = partition.restarted_at(image)
        assert again.capture().state == image.state


def test_a_state_and_files_that_do_not_fit_are_refused(partition: Partition) -> None:
    image = partition.checkpoint()
    for files in (image.files[:-1], image.files[:-2]):
        with pytest.raises(ImageDamaged, match="not those of its state"):
            new_machine().restore(partition.directory, image.state, files)


def test_another_directory_that_took_the_place_of_this_one_keeps_its_files(
    partition: Partition, tmp_path: Path
) -> None:
    partition.apply(AppendStage("b", 5))
    image = partition.stored.capture()
    other = Partition(tmp_path / "other")
    other.apply(put("z", b"1"))
    received = other.checkpoint()
    partition.stored.restore(other.directory, received.state, received.files)
    image.stored()
    assert len(stage_files(other)) == 1
    partition.stored.log.close()
