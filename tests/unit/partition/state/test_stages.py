"""Stages: stored by name, appended once, remembered, kept, forgotten. Every test runs on two replicas."""

from math import inf

import pytest
from msgspec.structs import replace

from stockade.partition.commands import (
    Append,
    Appended,
    AppendStage,
    ChangeStages,
    ClearFence,
    Configure,
    InstallFence,
    InstallProducer,
    NotEnrolled,
    PutStage,
    Result,
    Retain,
    Staged,
    StagesChanged,
    Stamp,
    Token,
)
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import (
    InconsistentTopicId,
    InvalidProducerEpoch,
    NotFound,
    OffsetMismatch,
    OutOfOrderSequence,
    PermissionDenied,
    ProducerBusy,
    ProducerFenced,
    StageAlreadyExists,
    StockadeError,
    ThrottlingQuotaExceeded,
    TopicSealed,
)
from stockade.partition.records.batch import batch_from_columns, decode_batch
from stockade.partition.state.producers import NO_BATCH, Outcome
from stockade.partition.state.stages import MemoryStageFiles, Stages

from ..driver import NAMED, TOPIC_ID, Driver, grant

TTL_MS = 1000


def put(name: str, values: list[bytes], now_ms: int = 0, digest: str | None = None) -> PutStage:
    batch = batch_from_columns([None] * len(values), values, None, None, now_ms=5, batch_bytes_max=1 << 20)
    return PutStage(
        name,
        digest or repr(values),
        batch.message,
        batch.count,
        batch.crc,
        batch.max_timestamp_ms,
        TTL_MS,
        now_ms=now_ms,
        received_ms=batch.received_ms,
    )


def refer(name: str, seq: int | None = None, epoch: int = 0, now_ms: int = 0) -> AppendStage:
    stamp = None if seq is None else Stamp(NAMED, epoch, seq)
    return AppendStage(name, 77, stamp=stamp, now_ms=now_ms)


def change(keep: str = "", delete: str = "", epoch: int = 0, now_ms: int = 0) -> ChangeStages:
    return ChangeStages(list(keep), list(delete), NAMED, epoch, now_ms=now_ms)


@pytest.fixture
def driver() -> Driver:
    """Two stages, a of two records and b of one; the producer is known."""
    found = Driver(replicas=2)
    found.apply(InstallProducer(NAMED, 0))
    assert found.apply(put("a", [b"1", b"2"])) == Staged(True)
    assert found.apply(put("b", [b"3"])) == Staged(True)
    return found


def values(driver: Driver) -> list[bytes]:
    messages = driver.machine.log.read(driver.machine.log_start, 1 << 30).messages()
    return [value for message in messages for value in decode_batch(message).column("value").to_pylist()]


def names(driver: Driver) -> str:
    return "".join(driver.machine.stages.stages)


def appended(result: Result | StockadeError) -> tuple[int | None, int | None, bool]:
    assert isinstance(result, Appended), result
    return result.base_offset, result.last_offset, result.duplicate


def test_staged_records_are_not_in_the_log_until_they_are_appended(driver: Driver) -> None:
    assert values(driver) == []
    assert appended(driver.apply(refer("b"))) == (0, 0, False)
    assert appended(driver.apply(refer("a"))) == (1, 2, False)
    assert values(driver) == [b"3", b"1", b"2"]


def test_a_stage_is_appended_once_and_answered_with_its_offsets_from_then_on(driver: Driver) -> None:
    driver.apply(refer("a"))
    driver.apply(refer("b"))
    assert appended(driver.apply(refer("a"))) == (0, 1, True)
    assert appended(driver.apply(refer("a", seq=0))) == (0, 1, True)
    assert values(driver) == [b"1", b"2", b"3"]
    assert isinstance(files := driver.machine.stages.files, MemoryStageFiles)
    assert files.messages == {}


def test_the_append_of_a_stage_answers_the_timestamp_that_its_records_have(driver: Driver) -> None:
    """They got it when the stage was received, not when it was appended (77); so do all later answers about them."""
    for seq in (0, None, 0):
        answer = driver.apply(refer("a", seq=seq))
        assert isinstance(answer, Appended)
        assert answer.timestamp_ms == 5
    (message,) = driver.machine.log.read(0, 1 << 30).messages()
    assert decode_batch(message).column("timestamp").cast("int64").to_pylist() == [5, 5]
    driver.apply(change(delete="a"))
    duplicate = driver.send(NAMED, 0, 0, 2)
    assert isinstance(duplicate, Appended)
    assert (duplicate.duplicate, duplicate.timestamp_ms) == (True, 5)
    old = driver.apply(replace(put("old", [b"9"]), received_ms=None))
    assert old == Staged(True)
    answer = driver.apply(refer("old"))
    assert isinstance(answer, Appended)
    assert answer.timestamp_ms == 5, "the greatest timestamp of its records, where the moment was not kept"


def test_a_duplicate_uses_up_no_sequence_number(driver: Driver) -> None:
    driver.apply(refer("a"))
    driver.apply(refer("a", seq=0))
    assert appended(driver.apply(refer("b", seq=0))) == (2, 2, False)


def test_a_stage_under_the_numbers_of_a_stored_batch_is_not_taken_for_that_batch(driver: Driver) -> None:
    """Its records are in no log yet: they can be appended still, under numbers of their own."""
    driver.send(NAMED, 0, 0)
    for _ in range(2):
        assert appended(driver.apply(refer("b", seq=0))) == (0, 0, True)
    assert appended(driver.apply(refer("b", seq=1))) == (1, 1, False)
    assert driver.machine.log.read(1, 1 << 20).messages() == [put("b", [b"3"]).message]


def test_an_append_by_reference_has_the_verdicts_of_an_append(driver: Driver) -> None:
    gap = driver.apply(refer("a", seq=4))
    assert gap == OutOfOrderSequence(reason="no_state", expected_seq=0, last_seq=-1)
    assert appended(driver.apply(refer("a", seq=0))) == (0, 1, False)
    assert appended(driver.apply(refer("b", seq=2))) == (2, 2, False)
    mismatch = driver.apply(AppendStage("a", 5, if_log_end=9))
    assert appended(mismatch) == (0, 1, True)
    driver.apply(put("c", [b"4"]))
    assert driver.apply(AppendStage("c", 5, if_log_end=9)) == OffsetMismatch(log_end=3)
    assert driver.apply(AppendStage("c", 5, topic_id=1)) == InconsistentTopicId(topic_id=TOPIC_ID)


def test_an_append_of_a_stage_without_the_slot_is_refused_with_an_outcome_certificate(driver: Driver) -> None:
    driver.apply(InstallFence(grant(1), 1, "s1", "loader", "Exclusive", 1))
    assert isinstance(driver.apply(refer("a")), ProducerBusy)
    holder = Token(grant(1), 1, "s1")
    assert appended(driver.apply(AppendStage("a", 5, token=holder, stamp=Stamp(NAMED, 0, 0)))) == (0, 1, False)
    driver.apply(ClearFence(grant(1), 1, 2))
    late = driver.apply(AppendStage("a", 5, token=holder, stamp=Stamp(NAMED, 0, 0)))
    assert isinstance(late, ProducerFenced)
    assert late.fields["outcome"] == {"state": "committed", "base_offset": 0, "last_offset": 1}
    unknown = driver.apply(AppendStage("zz", 5, token=holder, stamp=Stamp(NAMED, 0, 0)))
    assert isinstance(unknown, ProducerFenced)
    assert unknown.fields["outcome"] == NO_BATCH.fields()


def test_a_certificate_knows_a_stage_that_was_appended_with_another_stamp(driver: Driver) -> None:
    """It said "absent": a writer that believed it stored the batch twice."""
    driver.apply(InstallFence(grant(1), 1, "s1", "loader", "Exclusive", 1))
    former = Token(grant(1), 1, "s1")
    assert appended(driver.apply(AppendStage("a", 5, token=former, stamp=Stamp(NAMED, 0, 0)))) == (0, 1, False)
    driver.apply(InstallProducer(NAMED, 1))
    driver.apply(InstallFence(grant(2), 2, "s2", "loader", "Exclusive", 2))
    for name, outcome in (("a", Outcome("committed", 0, 1)), ("b", Outcome("absent"))):
        late = driver.apply(AppendStage(name, 5, token=former, stamp=Stamp(NAMED, 1, 0)))
        assert isinstance(late, ProducerFenced)
        assert late.fields["outcome"] == outcome.fields()


def test_an_old_producer_can_neither_append_nor_keep_nor_delete(driver: Driver) -> None:
    driver.apply(InstallProducer(NAMED, 1))
    assert isinstance(driver.apply(refer("a", seq=0)), InvalidProducerEpoch)
    assert isinstance(driver.apply(change(keep="a")), InvalidProducerEpoch)
    assert isinstance(driver.apply(change(delete="a", epoch=2)), InvalidProducerEpoch)
    assert values(driver) == []
    assert not driver.machine.stages.stages["a"].kept
    assert driver.apply(change(delete="a", epoch=1)) == StagesChanged()
    assert names(driver) == "b"


def test_an_unknown_producer_is_enrolled_first(driver: Driver) -> None:
    assert driver.apply(ChangeStages(["a"], [], NAMED + 2, 0)) == NotEnrolled(NAMED + 2)
    assert driver.apply(AppendStage("a", 5, stamp=Stamp(NAMED + 2, 0, 0))) == NotEnrolled(NAMED + 2)


def test_the_same_bytes_again_change_nothing_and_others_are_refused(driver: Driver) -> None:
    assert driver.apply(put("a", [b"1", b"2"])) == Staged(False)
    assert driver.apply(put("a", [b"9"])) == StageAlreadyExists(stage="a")
    driver.apply(refer("a"))
    assert driver.apply(put("a", [b"1", b"2"])) == Staged(False)
    assert driver.apply(put("a", [b"9"])) == StageAlreadyExists(stage="a")


def test_a_stage_expires_on_the_partitions_clock_and_not_a_moment_before(driver: Driver) -> None:
    driver.apply(Retain(0, TTL_MS - 1))
    assert names(driver) == "ab"
    assert driver.machine.has_due(TTL_MS)
    assert driver.apply(refer("a", now_ms=TTL_MS)) == NotFound(what="stage")
    assert names(driver) == ""
    assert driver.machine.stages.due_ms == inf


def test_a_kept_stage_does_not_expire_until_it_is_deleted(driver: Driver) -> None:
    assert driver.apply(change(keep="a")) == StagesChanged()
    driver.apply(Retain(0, 100 * TTL_MS))
    assert names(driver) == "a"
    driver.apply(refer("a", now_ms=200 * TTL_MS))
    driver.apply(Retain(0, 300 * TTL_MS))
    assert appended(driver.apply(refer("a"))) == (0, 1, True)
    driver.apply(InstallProducer(NAMED, 1))  # it was forgotten meanwhile
    assert driver.apply(change(delete="a", epoch=1)) == StagesChanged()
    assert driver.apply(refer("a")) == NotFound(what="stage")


def test_the_offsets_of_an_appended_stage_are_remembered_for_its_ttl(driver: Driver) -> None:
    driver.apply(refer("a", now_ms=TTL_MS - 1))
    assert appended(driver.apply(refer("a", now_ms=2 * TTL_MS - 2))) == (0, 1, True)
    assert driver.apply(refer("a", now_ms=2 * TTL_MS - 1)) == NotFound(what="stage")


def test_stages_are_kept_all_or_none(driver: Driver) -> None:
    assert driver.apply(change(keep="az", delete="b")) == NotFound(what="stage")
    assert names(driver) == "ab"
    assert not driver.machine.stages.stages["a"].kept


def test_deleting_a_missing_stage_succeeds(driver: Driver) -> None:
    assert driver.apply(change(delete="xa")) == StagesChanged()
    assert driver.apply(change(delete="xa")) == StagesChanged()
    assert names(driver) == "b"


def test_a_sealed_topic_takes_no_stage_and_appends_none(driver: Driver) -> None:
    driver.apply(Configure(9, PartitionConfig(TOPIC_ID, sealed=True)))
    assert driver.apply(put("c", [b"x"])) == TopicSealed(log_end=0)
    assert driver.apply(refer("a")) == TopicSealed(log_end=0)


def bounded(stages_max: int, bytes_max: int) -> Driver:
    driver = Driver()
    driver.machine.stages = Stages(MemoryStageFiles(), stages_max, bytes_max)
    driver.apply(InstallProducer(NAMED, 0))
    return driver


def test_a_stage_beyond_the_bound_on_their_number_is_refused_until_one_is_deleted() -> None:
    driver = bounded(2, 1 << 30)
    driver.apply(put("a", [b"1"]))
    driver.apply(put("b", [b"2"]))
    assert isinstance(driver.apply(put("c", [b"3"])), ThrottlingQuotaExceeded)
    assert driver.apply(put("a", [b"1"])) == Staged(False)
    driver.apply(refer("a"))  # a note counts too
    assert isinstance(driver.apply(put("c", [b"3"])), ThrottlingQuotaExceeded)
    driver.apply(change(delete="a"))
    assert driver.apply(put("c", [b"3"])) == Staged(True)


def test_a_stage_beyond_the_bound_on_bytes_is_refused_until_others_are_appended() -> None:
    size = len(put("a", [b"1"]).message)
    driver = bounded(9, 2 * size)
    driver.apply(put("a", [b"1"]))
    driver.apply(put("b", [b"2"]))
    assert isinstance(driver.apply(put("c", [b"3"])), ThrottlingQuotaExceeded)
    driver.apply(refer("a"))
    assert driver.apply(put("c", [b"3"])) == Staged(True)
    assert isinstance(driver.apply(put("d", [b"4"])), ThrottlingQuotaExceeded)


def test_the_log_stores_the_bytes_that_were_staged(driver: Driver) -> None:
    driver.apply(AppendStage("a", 77))
    command = put("a", [b"1", b"2"])
    (batch,) = driver.machine.log.read(0, 1 << 20).batches
    assert (batch.crc, batch.count, batch.timestamp_ms) == (command.crc, 2, 77)
    assert driver.machine.log.read(0, 1 << 20).messages() == [command.message]
    assert isinstance(driver.apply(Append(command.message, 2, command.crc, 5, 5)), Appended)


def test_only_the_principal_of_a_stage_keeps_deletes_or_appends_it_unless_another_may_evict(driver: Driver) -> None:
    assert driver.apply(replace(put("c", [b"4"]), principal="p")) == Staged(True)
    for by in ("q", ""):
        for refused in (change(keep="c"), change(delete="c"), change(keep="a", delete="c"), refer("c")):
            assert isinstance(driver.apply(replace(refused, principal=by)), PermissionDenied)
    assert (names(driver), driver.machine.stages.stages["a"].kept) == ("abc", False)
    assert driver.apply(replace(change(keep="c"), principal="p")) == StagesChanged()
    assert driver.apply(replace(change(delete="a"), principal="q")) == StagesChanged(), "put without a principal"
    assert appended(driver.apply(replace(refer("c"), principal="q", evicts=True))) == (0, 0, False)
    assert driver.apply(replace(change(delete="c"), principal="q", evicts=True)) == StagesChanged()
    assert names(driver) == "b"
