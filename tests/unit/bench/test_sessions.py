"""bench/sessions.py measures few sessions as well as many."""

import asyncio
import os

import pytest
import sessions

from stockade.testing import Cluster


def test_fewer_sessions_than_connections_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3
    assert count < sessions.CONNECTIONS_MAX
    with Cluster() as cluster:
        monkeypatch.setattr(sessions, "controller", lambda _: (cluster.url, os.getpid()))
        _, measured = asyncio.run(sessions.measure(None, count, 10_000, 0.2, 1))  # type: ignore[arg-type]
    assert measured.renewals_per_s > 0
