"""The tables of a node's configuration file; config.py reads and checks them."""

from typing import Literal

import msgspec

from ..raft.tls import Tls, TlsFiles


class Member(msgspec.Struct, frozen=True):
    """A node as the others reach it: base URL of its HTTP interface, host:port of its Raft port, its zone."""

    node_id: str
    url: str
    raft: str
    zone: str | None = None


class TlsSection(msgspec.Struct, frozen=True):
    """[raft.tls]: encrypt the traffic between nodes. PEM files; relative paths are relative to the configuration."""

    ca: str
    certificate: str
    key: str

    def load(self, cluster_id: str, node_id: str) -> Tls:
        """Read the files. Raises TlsFault."""
        return Tls(TlsFiles(self.ca, self.certificate, self.key), cluster_id, node_id)


class RaftSection(msgspec.Struct, frozen=True):
    """[raft]: timing of elections, in milliseconds. A follower that hears nothing for a time drawn between min and max
    asks for votes; shorter times fail over faster and mistake a busy leader for a dead one sooner.
    """

    election_timeout_min_ms: int = 600
    election_timeout_max_ms: int = 1200
    heartbeat_ms: int = 150
    plaintext: bool = False
    tls: TlsSection | None = None


class LimitsSection(msgspec.Struct, frozen=True):
    """[limits]: when the outcome of a request is called unknown; sizes of files; the size of the log beyond which
    groups take checkpoints to shorten it, and the bytes of commands after which a group takes one anyway; how fast old
    segments are read again to see whether they are as they were written (0: never).
    """

    request_timeout_ms: int = 10_000
    segment_bytes_max: int = 64 * 1024 * 1024
    wal_file_bytes: int = 64 * 1024 * 1024
    wal_bytes_max: int = 512 * 1024 * 1024
    checkpoint_bytes: int = 64 * 1024 * 1024
    inspection_bytes_per_s: int = 1024 * 1024


class Token(msgspec.Struct, frozen=True):
    """[[tokens]]: whoever presents the token with this SHA-256 (hexadecimal) over HTTP may do so much. Where there are
    tokens, nobody may do anything without. ``name`` is for people.
    """

    name: str
    sha256: str
    may: Literal["read", "write", "admin"]
