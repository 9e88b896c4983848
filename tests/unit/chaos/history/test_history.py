import io
from pathlib import Path

import pytest
from histories import read_history

from stockade.chaos.history.history import Event, History, operations, record_name, split_name
from stockade.partition.errors import ProducerFenced, RequestTimedOut


def ticking_history() -> History:
    ticks = iter(range(100))
    return History(io.BytesIO(), clock_ns=lambda: next(ticks))


def test_an_operation_is_an_invocation_and_its_end() -> None:
    history = ticking_history()
    first = history.invoke("w1", "append", partition=3, value="w1/0", count=5, epoch=2)
    second = history.invoke("w2", "append", partition=1, value="w2/0", count=5)
    history.settle(second, "ok", offset=9)
    found = operations(history.events)
    assert [(op.invoke.i, op.outcome) for op in found] == [(first.i, "info"), (second.i, "ok")]
    assert found[1].end is not None
    assert (found[1].end.partition, found[1].end.value, found[1].end.offset) == (1, "w2/0", 9)


@pytest.mark.parametrize(
    ("error", "kind", "name"),
    [
        (ProducerFenced(current_epoch=2, outcome={"state": "absent"}), "fail", "PRODUCER_FENCED"),
        (ProducerFenced(outcome={"state": "unknown"}), "info", "PRODUCER_FENCED"),
        (ProducerFenced(outcome={"state": "committed"}), "info", "PRODUCER_FENCED"),
        (RequestTimedOut(), "info", "REQUEST_TIMED_OUT"),
        (ConnectionResetError("gone"), "info", "ConnectionResetError: gone"),
    ],
)
def test_only_a_proof_of_no_effect_is_a_failure(error: BaseException, kind: str, name: str) -> None:
    history = ticking_history()
    end = history.settle_error(history.invoke("w", "append"), error)
    assert (end.type, end.error) == (kind, name)


def test_a_fencing_refusal_keeps_its_certificate() -> None:
    history = ticking_history()
    outcome = {"state": "committed", "base_offset": 4, "last_offset": 6}
    end = history.settle_error(history.invoke("w", "append"), ProducerFenced(outcome=outcome))
    assert end.outcome == outcome


def test_a_history_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with History.create(path) as history:
        history.settle(history.invoke("w", "append", topic="t", partition=0, value="w/0", count=2), "ok", offset=0)
        history.note("nemesis", "kill", node="n2")
    assert read_history(path) == history.events


def test_events_of_another_process_keep_their_pairs_under_new_numbers() -> None:
    history = ticking_history()
    history.note("nemesis", "stop")
    foreign = [
        Event(i=0, t_mono_ns=7, process="far", type="invoke", f="append"),
        Event(i=1, t_mono_ns=9, process="far", type="ok", f="append", of=0),
    ]
    for event in foreign:
        history.absorb(event)
    assert [(event.i, event.of, event.t_mono_ns) for event in history.events[1:]] == [(1, None, 7), (2, 1, 9)]


def test_a_record_name_is_taken_apart_at_its_last_slash() -> None:
    assert split_name(record_name("dir/file.log", 12)) == ("dir/file.log", 12)


@pytest.mark.parametrize("name", ["", "nothing", "w/x"])
def test_a_key_that_no_writer_made_is_told_apart(name: str) -> None:
    with pytest.raises(ValueError):
        split_name(name)
