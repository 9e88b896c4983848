"""bench/client.py: one load that fails costs its own row, not the table."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = spec_from_file_location("bench_client", BENCH / "client.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in ("trees", "nats_peer"):
        sys.modules.pop(name, None)


def test_a_load_that_fails_is_a_row_with_its_reason_and_the_others_go_on(
    bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = {"send": 0, "nats-c-publish": 0}

    def sends() -> object:
        rounds["send"] += 1
        return bench.Load(3000.0, 5.5)

    def fails() -> object:
        rounds["nats-c-publish"] += 1
        raise subprocess.CalledProcessError(1, "nats_publish", stderr="connecting\nno servers available\n")

    rows = {"nats-c-publish": fails, "send": sends, "nats-publish": lambda: bench.Load(1000.0, 20.0)}
    bench.show(*bench.measured(rows, 2, {"nats-consume": "out of room"}))
    shown = capsys.readouterr()
    assert rounds == {"send": 3, "nats-c-publish": 1}
    assert "nats-c-publish       failed: no servers available" in shown.out
    assert "nats-consume         failed: out of room" in shown.out
    assert "P1: send / nats-py                   3.00" in shown.out
    assert "P2" not in shown.out
    assert "round 2 of 2" in shown.err


def test_ctrl_c_shows_what_was_measured_by_then(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter([bench.Load(1.0, 1.0), bench.Load(7.0, 1.0)])

    def interrupted() -> object:
        try:
            return next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    bench.show(*bench.measured({"send": interrupted}, 3, {}))
    assert "send                          7" in capsys.readouterr().out
