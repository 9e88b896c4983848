"""A peer that cannot be installed says why; nothing is left behind."""

from pathlib import Path

import install
import pytest
from setup_tools import CannotHave


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no programs at all, and no peers."""
    monkeypatch.setattr(install, "PEERS", tmp_path / "peers")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "peers"


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (install.etcd, "no Go"),
        (install.nats, "no Go"),
        (install.kafka, "no java"),
        (install.rabbitmq, "this is no Debian"),
    ],
)
def test_a_peer_without_its_installer_cannot_be_had(peer: object, reason: str, bare: Path) -> None:
    assert callable(peer)
    with pytest.raises(CannotHave, match=reason):
        peer()
    assert not bare.exists() or not list(bare.iterdir())


def test_an_unpacked_erlang_starts_from_where_it_was_unpacked(tmp_path: Path) -> None:
    script = tmp_path / "erl"
    script.write_text('if x; then\n  ROOTDIR=/usr/lib/erlang\nfi\nexec "$ROOTDIR/bin/erlexec"\n')
    install._relocate_erlang(script, Path("/peers/erlang"))
    assert script.read_text() == 'if x; then\n  ROOTDIR=/peers/erlang\nfi\nexec "$ROOTDIR/bin/erlexec"\n'
