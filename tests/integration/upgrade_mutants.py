"""The test of upgrades tests itself: one mistake at a time in the newer release, and it has to fail.

`make chaos-mutants` runs it; minutes, not seconds.
"""

from pathlib import Path

import pytest

from .test_upgrade import upgraded

MUTANTS = {
    "a frame that the other end does not know": """
from stockade.raft.net.connection import Connection
keep_alive = Connection.keep_alive
def and_news(connection, dead_s, awake_at_s, ping):
    keep_alive(connection, dead_s, awake_at_s, ping)
    if connection.peer is not None:
        connection.send(b"\\x05\\0\\0\\0" + b"\\xc8" + b"\\0\\0\\0\\0")
Connection.keep_alive = and_news
""",
    "an older node is never dialled in its version": """
from stockade.raft.net import transport
transport.wants_older = lambda reason: False
""",
    "a command that older software does not know, before the level is raised": """
from stockade.cluster.leader.member_service import MemberService
MemberService._lacks = lambda service, node_id, level: None
""",
    "a disk that is marked before the level is raised": """
from stockade.raft.host import RaftHost
start = RaftHost.start
async def started(host):
    await start(host)
    await host.log.raise_level(2)
RaftHost.start = started
""",
}
"""Each is the code of a sitecustomize module, which Python runs before the node."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_in_the_newer_release_is_found(tmp_path: Path, mutant: str) -> None:
    folder = tmp_path / "mutant"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(MUTANTS[mutant])
    with pytest.raises((AssertionError, ExceptionGroup)):
        upgraded(tmp_path, folder)
