"""Lines of a node's log: for people or for programs, and more of them while the node runs."""

import json
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stockade.cli.node import logs


@contextmanager
def started(level: str, line_format: logs.Format, node_id: str, *, is_one_of_many: bool = False) -> Iterator[None]:
    """As in a process of its own, where no other handler writes a line."""
    root = logging.getLogger()
    others, root.handlers[:] = root.handlers[:], []
    try:
        with logs.logging_to_stderr(level, line_format, node_id, is_one_of_many=is_one_of_many):
            yield
    finally:
        root.handlers += others


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_line_of_json_has_what_the_event_has_and_no_line_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("stockade.cluster.node.leadership")
    with started("info", "json", "n1"):
        log.info("this node leads %s", "orders/0", extra={"event": {"event": "leadership_won", "term": 7}})
        try:
            raise ValueError("first\nsecond")
        except ValueError:
            log.exception("a bug\nof two lines")
    won, bug = map(json.loads, lines(capsys))
    assert won.pop("time").endswith("Z")
    assert won == {
        "level": "INFO",
        "node": "n1",
        "logger": "stockade.cluster.node.leadership",
        "message": "this node leads orders/0",
        "event": "leadership_won",
        "term": 7,
    }
    assert (bug["level"], bug["message"]) == ("ERROR", "a bug\nof two lines")
    assert bug["exception"].startswith("Traceback")
    assert bug["exception"].endswith("ValueError: first\nsecond\n")


def test_a_line_of_text_names_the_node_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    with started("info", "text", "a.1", is_one_of_many=True):
        logging.getLogger("stockade.x").warning("hello")
    assert lines(capsys)[0].endswith(" WARNING a.1 stockade.x: hello")


@pytest.mark.parametrize("level", logs.LEVELS)
def test_usr1_turns_debug_on_and_off_again_and_libraries_stay_as_they_are(
    level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, library = logging.getLogger("stockade.x"), logging.getLogger("library")
    with started(level, "text", "n1"):
        before = ours.getEffectiveLevel()
        assert ours.isEnabledFor(logging.DEBUG) is (level == "debug")
        said = []
        for _ in range(2):
            signal.raise_signal(signal.SIGUSR1)
            said.append(ours.isEnabledFor(logging.DEBUG))
            assert f"lines from {logging.getLevelName(ours.getEffectiveLevel())} on" in lines(capsys)[-1]
            assert not library.isEnabledFor(logging.DEBUG)
        assert said == ([False, True] if level == "debug" else [True, False])
        assert ours.getEffectiveLevel() == before


def test_a_node_that_stops_leaves_logging_and_signals_of_its_process_as_it_found_them() -> None:
    """A test, or a program with a node inside, would else log at the level of a node that runs no more."""
    root, ours = logging.getLogger(), logging.getLogger(logs.OURS)

    def state() -> tuple[object, ...]:
        return root.level, ours.level, [*root.handlers], signal.getsignal(signal.SIGUSR1)

    before = state()
    with pytest.raises(SystemExit), logs.logging_to_stderr("debug", "text", "n1", is_one_of_many=False):
        assert all(now != then for now, then in zip(state(), before, strict=True))
        raise SystemExit(1)
    assert state() == before
