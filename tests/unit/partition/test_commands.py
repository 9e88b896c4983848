from typing import get_args

import pytest
from memory_log import MemoryLog

from stockade.partition.commands import (
    PRODUCER_EPOCH_MAX,
    SEQUENCE_MODULUS,
    AddTierObject,
    Append,
    Appended,
    AppendStage,
    BeginAt,
    BeginTier,
    ChangeStages,
    ClearFence,
    Command,
    CommitPosition,
    Configure,
    Configured,
    ForgetProducers,
    InstallFence,
    InstallProducer,
    InstallReader,
    InstallSeats,
    NotEnrolled,
    PositionCommitted,
    ProducerInstalled,
    ProducersForgotten,
    PutStage,
    ReaderInstalled,
    Result,
    Retain,
    SharedHolder,
    SlotState,
    Staged,
    StagesChanged,
    Stamp,
    Tiered,
    TierObject,
    Token,
    Trim,
    Trimmed,
    decode_command,
    decode_result,
    encode_command,
    encode_result,
)
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import BY_CODE, NotLeaderOrFollower, OffsetOutOfRange, ProducerFenced, StockadeError
from stockade.partition.state.machine import PartitionMachine

LIMITS = Stamp((1 << 63) - 1, PRODUCER_EPOCH_MAX, SEQUENCE_MODULUS - 1)


COMMANDS: list[Command] = [
    Append(b"\x00\xff", 3, 1 << 31, 5, 4),
    Append(b"m", 1, 0, 5, 4, 812, Token("g-812-1", (1 << 64) - 1, "s"), LIMITS, 0, 17, 3, "name"),
    InstallFence("g-812-1", 7, "s", "loader", "Exclusive", 99, "client", 5, "promotion", "expired"),
    InstallSeats(7, 99, [SharedHolder("g-812-1", "s", "loader", "client", 5)], 5, "closed"),
    ClearFence("g-812-1", 7, 99, 5, "expired"),
    InstallProducer(7, 32767, 99, 5),
    ForgetProducers([7, 9], 99),
    Trim(None, 812, Token("g-812-1", 7, "s"), 5),
    Trim(4, if_epoch=7, if_log_end=9),
    BeginAt(4, 812, 5, "p"),
    Retain(3, 5),
    Configure(99, PartitionConfig(812, True, True, 1, 1000, 5, "g", True), 5),
    InstallReader("g", (1 << 64) - 1, False),
    CommitPosition("g", 3, "note", 7),
    CommitPosition("g", None, None, 7),
    PutStage("s~1", "d", b"m", 1, 0, 4, 1000, 812, 5, 3),
    ChangeStages(["a"], ["b"], 7, 3, 812, 5),
    BeginTier("812-t/0-abc"),
    AddTierObject("812-t/0-abc", TierObject(0, 4, 3, "n", 9, b"s" * 32, 90, 7, 8)),
    AppendStage("s~1", 5, 812, Token("g-812-1", 7, "s"), LIMITS, 0, 17, 3, "name"),
]


def test_every_command_is_tried_and_answered() -> None:
    assert {type(command) for command in COMMANDS} == set(get_args(Command))
    for command in COMMANDS:
        machine = PartitionMachine(PartitionConfig(812), MemoryLog())
        assert isinstance(machine.apply(1, 1, encode_command(command)), Result | StockadeError)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_survives_its_bytes(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize(
    "result",
    [
        Appended(0, 3, False, 0, 17),
        Appended(None, None, True, 0, None),
        SlotState(True, (1 << 64) - 1),
        ProducerInstalled(3),
        ProducersForgotten([9]),
        NotEnrolled(8),
        Trimmed(3, 4),
        Configured(99),
        ReaderInstalled(7),
        PositionCommitted(),
        Staged(True),
        StagesChanged(),
        Tiered(7, "812-t/0-abc", True),
        ProducerFenced(current_epoch=2, reason="superseded", outcome={"state": "absent"}),
        NotLeaderOrFollower("http://127.0.0.1:1", 3),
        OffsetOutOfRange(1, 2, 3),
    ],
)
def test_an_answer_survives_its_bytes(result: Result | StockadeError) -> None:
    revived = decode_result(encode_result(result))
    assert type(revived) is type(result)
    assert revived == result


def test_every_refusal_can_be_revived() -> None:
    for code, cls in BY_CODE.items():
        error = cls.__new__(cls)
        StockadeError.__init__(error, "why", some=1)
        revived = decode_result(encode_result(error))
        assert isinstance(revived, cls)
        assert (revived.code, revived.detail, revived.fields) == (code, "why", {"some": 1})


def test_a_refusal_keeps_its_status_across_the_wire() -> None:
    for error, status in ((OffsetOutOfRange(1, 2, 3), 410), (OffsetOutOfRange(4, 2, 3), 416)):
        revived = decode_result(encode_result(error))
        assert isinstance(revived, OffsetOutOfRange)
        assert revived.status == status
