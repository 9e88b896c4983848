"""A forked child has neither the threads nor the event loop of its parent: what it takes along says so at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..fake_cluster import FakeCluster

PROGRAM = Path(__file__).with_name("forking.py")


KINDS = ["producer", "client", "consumer", "session", "delivery", "reading", "loss", "outcome", "asyncio"]
"""A loss or an outcome would never come in a child: it would take what it had at the fork for what is."""


@pytest.mark.parametrize("kind", KINDS)
def test_objects_of_the_parent_are_refused_in_a_forked_child_and_still_work_in_the_parent(
    cluster: FakeCluster, kind: str
) -> None:
    cluster.create("t")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM), cluster.nodes[0], kind]
    ended = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["child: USED_AFTER_FORK", "child: stored with its own", "parent: stored"]
