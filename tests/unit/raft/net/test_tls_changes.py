"""TLS between nodes that changes while they run: certificates, revoked nodes, and the way from none to all."""

from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from stockade.raft.messages import Refusal
from stockade.raft.net.tls import Mode, Tls, TlsFault, TlsFiles

from ..transports import UNSET, Node, Peer, Run, hello
from .certificates import CLUSTER, Issuer
from .test_streams import Caller, echoing

NONE = "none"
ORDER = (NONE, "accept", "dial", "require")


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer.make(tmp_path / "ours")


def remove(files: TlsFiles) -> None:
    Path(files.certificate).unlink()
    Path(files.key).unlink()


def in_mode(issuer: Issuer, node_id: str, mode: str) -> Tls | None:
    modes: dict[str, Mode] = {"accept": "accept", "dial": "dial", "require": "require"}
    return None if mode == NONE else Tls(issuer.files(node_id), CLUSTER, node_id, modes[mode])


@pytest.mark.parametrize(
    ("one", "two"), [pair for pair in product(ORDER, ORDER) if abs(ORDER.index(pair[0]) - ORDER.index(pair[1])) <= 1]
)
def test_nodes_one_step_apart_connect_whichever_dials(run: Run, issuer: Issuer, one: str, two: str) -> None:
    async def scenario() -> None:
        addresses = {"n1": UNSET, "n2": UNSET}
        async with (
            Node("n1", addresses, tls=in_mode(issuer, "n1", one)) as n1,
            Node("n2", addresses, tls=in_mode(issuer, "n2", two)) as n2,
        ):
            await n1.until_events(1)
            await n2.until_events(1)
            assert (n1.events, n2.events) == (["up n2"], ["up n1"])
            (connection,) = n1.transport._admitted.values()
            assert (connection.names is not None) == (two in ("dial", "require"))  # n2 dials

    run(scenario)


def test_a_node_that_requires_tls_takes_no_plain_connection_and_one_in_between_does(run: Run, issuer: Issuer) -> None:
    async def scenario() -> None:
        for mode, taken in (("accept", True), ("dial", True), ("require", False)):
            async with (
                Node("n1", {"n1": UNSET, "n2": UNSET}, tls=in_mode(issuer, "n1", mode)) as n1,
                await Peer.dial(n1, hello("n2")) as peer,
            ):
                assert isinstance(await peer.hear(), Refusal) != taken

    run(scenario)


@pytest.mark.parametrize("by", ["id", "fingerprint"])
def test_a_revoked_node_loses_its_connections_and_gets_no_new_one(
    run: Run, issuer: Issuer, tmp_path: Path, by: str
) -> None:
    revoked = tmp_path / "revoked.txt"
    revoked.write_text("# no node so far\n")
    files = issuer.files("n1")

    async def scenario() -> None:
        addresses = {"n1": UNSET, "n2": UNSET}
        tls = Tls(TlsFiles(files.ca, files.certificate, files.key, str(revoked)), CLUSTER, "n1")
        async with Node("n1", addresses, tls=tls) as n1, Node("n2", addresses, tls=issuer.tls("n2")) as n2:
            await n1.until_events(1)
            made, caller = echoing(n1), Caller()
            await n2.transport.open_stream("n1", caller)
            fingerprint = n1.transport._admitted["n2"].fingerprint
            assert fingerprint is not None
            revoked.write_text(f"{'n2' if by == 'id' else fingerprint.upper()}  # stolen\n")
            assert tls.has_changed()
            tls.reload()
            await n1.until_events(2)
            assert n1.events == ["up n2", "down n2"]
            await made[0].lost.wait()
            with pytest.raises(ConnectionError, match="revoked"):
                await n2.transport.open_stream("n1", Caller())
            revoked.write_text("")
            tls.reload()
            await n1.until_events(3)

    run(scenario)


def test_a_file_of_revoked_nodes_that_is_missing_shuts_the_node_out_itself(issuer: Issuer, tmp_path: Path) -> None:
    files = issuer.files("n1")
    with pytest.raises(TlsFault, match="revoked: "):
        Tls(TlsFiles(files.ca, files.certificate, files.key, str(tmp_path / "none")), CLUSTER, "n1")


def test_files_that_cannot_be_used_do_not_change_when_the_certificate_in_use_expires(
    issuer: Issuer, tmp_path: Path
) -> None:
    """The metric told of a certificate that was not in use, so the alert of the one in use ended."""
    revoked = tmp_path / "revoked"
    revoked.write_text("")
    files = issuer.files("n1")
    tls = Tls(TlsFiles(files.ca, files.certificate, files.key, str(revoked)), CLUSTER, "n1")
    expires_at = tls.expires_at
    remove(files)
    later = datetime.now(UTC) + timedelta(days=9)
    issuer.authority.issue(Path(files.certificate).parent, CLUSTER, "n1", ["n1"], later)
    revoked.unlink()
    with pytest.raises(TlsFault, match="revoked: "):
        tls.reload()
    assert (tls.expires_at, tls.is_refused) == (expires_at, True)
    revoked.write_text("")
    tls.reload()
    assert expires_at is not None and tls.expires_at is not None and tls.expires_at > expires_at


def test_a_new_certificate_is_for_new_connections_and_a_bad_one_for_none(run: Run, issuer: Issuer) -> None:
    files = issuer.files("n1")

    async def scenario() -> None:
        addresses = {"n1": UNSET, "n2": UNSET}
        tls = issuer.tls("n1")
        async with Node("n1", addresses, tls=tls) as n1:
            async with Node("n2", addresses, tls=issuer.tls("n2")) as n2:
                await n2.until_events(1)
                before = n2.transport._admitted["n1"].fingerprint
                remove(files)
                with pytest.raises(TlsFault):
                    tls.reload()
                assert not tls.has_changed()
                assert tls.is_refused
                issuer.files("n1")  # made again
                assert tls.has_changed()
                tls.reload()
                assert not tls.is_refused
                assert n1.events == ["up n2"]
            async with Node("n2", addresses, tls=issuer.tls("n2")) as n2:
                await n2.until_events(1)
                assert n2.transport._admitted["n1"].fingerprint not in (None, before)

    run(scenario)
