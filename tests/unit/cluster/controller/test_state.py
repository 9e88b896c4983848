"""The controller's state as bytes: captured, checked, and put back (SEMANTICS 10)."""

import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.cluster.controller.commands import CreateTopic, InitProducer, decode_command
from stockade.cluster.controller.invariants import check
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.state import decode, encode
from stockade.partition.api.topics import TopicConfig
from stockade.partition.log.image import FileExtent, ImageDamaged

from ..lives import random_life

NOWHERE = Path("unused")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), split=st.floats(0, 1))
def test_a_restored_machine_equals_the_captured_one_and_applies_alike(seed: int, split: float) -> None:
    log = random_life(seed, steps=150).log
    here = int(split * len(log))
    whole, restored = ControllerMachine(), ControllerMachine()
    for index, (term, data) in enumerate(log[:here], start=1):
        whole.apply(index, term, data)
    captured = whole.capture()
    restored.restore(NOWHERE, captured.state, captured.files)
    check(restored)
    assert restored.capture().state == captured.state
    assert list(restored.work()) == list(whole.work())
    for index, (term, data) in enumerate(log[here:], start=here + 1):
        assert restored.apply(index, term, data) == whole.apply(index, term, data)
    assert restored.capture().state == whole.capture().state
    assert list(restored.work()) == list(whole.work())


def test_enrolments_of_the_first_version_are_read() -> None:
    house = random_life(10)
    state = decode(house.machine.capture().state)
    enrolments = state.registry.enrolments
    numbers, groups, orders = iter(enrolments.flat), [], []
    for pid in numbers:
        pairs = [(next(numbers), next(numbers)) for _ in range(next(numbers))]
        groups.append((pid, [group for group, _ in pairs]))
        orders.append([order for _, order in pairs])
    assert groups, "a life without enrolments"
    older = msgspec.structs.replace(enrolments, flat=[], groups=groups, orders=orders)
    registry = msgspec.structs.replace(state.registry, enrolments=older)
    data = bytearray(encode(msgspec.structs.replace(state, registry=registry)))
    assert data[4:6] == b"\2\0", "the version"
    data[4] = 1
    restored = ControllerMachine()
    restored.restore(NOWHERE, bytes(data), ())
    assert restored.capture().state == house.machine.capture().state


def test_a_running_machine_is_replaced_whole() -> None:
    old, new = random_life(1).machine, random_life(2).machine
    old.restore(NOWHERE, new.capture().state, ())
    assert old.capture().state == new.capture().state


def test_a_capture_changes_no_state_and_is_not_changed_by_later_commands() -> None:
    house = random_life(3)
    before = house.machine.capture().state
    copy = bytes(before)
    assert house.machine.capture().state == before
    house.open("one more")
    assert before == copy
    assert house.machine.capture().state != before


@pytest.mark.parametrize("place", [0, 4, 8, 20, -1])
def test_085_a_damaged_state_is_refused_and_changes_nothing(place: int) -> None:
    machine = random_life(4).machine
    before = machine.capture().state
    damaged = bytearray(before)
    damaged[place] ^= 1
    for bad in (bytes(damaged), before[:place], b""):
        with pytest.raises(ImageDamaged):
            machine.restore(NOWHERE, bad, ())
    assert machine.capture().state == before


def test_a_state_with_a_good_crc_that_is_no_state_is_refused() -> None:
    header = encode(decode(ControllerMachine().capture().state))[:8]
    with pytest.raises(ImageDamaged):
        ControllerMachine().inspect(NOWHERE, header + zlib.crc32(b"\x90").to_bytes(4, "little") + b"\x90", ())


def test_a_checkpoint_and_commands_with_the_retired_durability_and_timeout_ms_still_load() -> None:
    machine, loaded = random_life(7).machine, ControllerMachine()
    data = machine.capture().state
    state = msgspec.msgpack.decode(data[12:])
    assert state["catalog"]
    for topic in state["catalog"]:
        for config in (topic["config"], (topic["created"] or {}).get("config", {})):
            config["durability"] = "replicated"
    assert state["registry"]["rows"]
    for row in state["registry"]["rows"]:
        row["timeout_ms"] = 60_000
    body = msgspec.msgpack.encode(state)
    loaded.restore(NOWHERE, data[:8] + zlib.crc32(body).to_bytes(4, "little") + body, ())
    assert loaded.capture().state == data

    create = CreateTopic(now_ms=0, name="t", partitions=1, replication_factor=1, config=TopicConfig(), nodes=[])
    old = msgspec.to_builtins(create)
    old["config"]["durability"] = "replicated"
    assert decode_command(msgspec.msgpack.encode(old)) == create
    init = InitProducer(now_ms=0, name="w", pair=(1001, 4), nonce="n")
    assert decode_command(msgspec.msgpack.encode(msgspec.to_builtins(init) | {"timeout_ms": 60_000})) == init


def test_files_are_refused_because_the_controller_has_none() -> None:
    machine = ControllerMachine()
    with pytest.raises(ImageDamaged):
        machine.inspect(NOWHERE, machine.capture().state, [FileExtent("x", 1)])


def test_a_fresh_start_forgets_everything() -> None:
    machine = random_life(5).machine
    machine.start(NOWHERE)
    assert machine.capture().state == ControllerMachine().capture().state
