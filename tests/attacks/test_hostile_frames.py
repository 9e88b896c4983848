"""What a stranger sends to the Raft port: no node ends, grows, answers 5xx or loses a leadership by it."""

import os
import random
import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from integration.api import Topic, expect

from stockade.cluster.config import parse_address
from stockade.raft.messages import Hello, Ping, TimeoutNow
from stockade.raft.net.codec import PROTOCOL_VERSION, encode

from .cluster import DESCRIPTORS, Watch, log, running

FRAMES = int(os.environ.get("ATTACK_FRAMES", "3000"))
"""Hostile connections to all nodes together, each with what is no hello of this cluster."""
AT_ONCE = 100
"""Of them, so many are open at a time to one node: more than it keeps without a hello."""


def hostile(chance: random.Random) -> bytes:
    """Bytes that no node sends first."""
    hello = Hello(PROTOCOL_VERSION, "another cluster", "n9", 1)
    return chance.choice(
        [
            struct.pack("<I", chance.randrange(1 << 32)) + chance.randbytes(chance.randrange(64)),
            chance.randbytes(chance.randrange(1, 8192)),
            encode(0, hello),
            encode(0, hello)[: chance.randrange(1, 20)],
            encode(0, Hello(PROTOCOL_VERSION + 1, "local", "n3", 1)),
            encode(0, Hello(PROTOCOL_VERSION, "local", "n9", 1)) * 2,
            encode(0, Ping()),
            encode(chance.randrange(8), TimeoutNow(chance.randrange(1 << 40))) * 50,
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00" + chance.randbytes(200),
        ]
    )


@pytest.mark.timeout(3600)
@pytest.mark.processes
def test_hostile_frames_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(20)
    with running(tmp_path, DESCRIPTORS) as cluster:
        topic = Topic(cluster.nodes[0].url, "orders")
        topic.create(partitions=3)
        watch = Watch(cluster, topic.name)
        held: list[socket.socket] = []
        for number in range(FRAMES):
            connection = socket.create_connection(parse_address(cluster.nodes[number % 3].raft), 60)
            held.append(connection)
            with suppress(ConnectionError):  # it was the oldest
                connection.sendall(hostile(chance))
            if len(held) > AT_ONCE * 3:
                held.pop(0).close()
            if number % 100 == 0:
                expect(200, topic.append(f"{number}", number % 3))
        for connection in held:
            connection.close()
        watch.check()
        assert "Traceback" not in log(cluster)
