"""bench/sessions.py measures few sessions as well as many."""

import asyncio
import os
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from stockade.testing import Cluster

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = spec_from_file_location("bench_sessions", BENCH / "sessions.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("trees", None)


def test_fewer_sessions_than_connections_are_measured(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3
    assert count < bench.CONNECTIONS_MAX
    with Cluster() as cluster:
        monkeypatch.setattr(bench, "controller", lambda _: (cluster.url, os.getpid()))
        _, measured = asyncio.run(bench.measure(None, count, 10_000, 0.2, 1))
    assert measured.renewals_per_s > 0
