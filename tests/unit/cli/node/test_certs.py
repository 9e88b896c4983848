"""`stockade certs`: what it makes can be used as it is printed, and nothing that exists is touched."""

import resource
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509

from stockade.cli.main import main
from stockade.cli.node.authority import CA_DAYS, NODE_DAYS
from stockade.cluster.config import load
from stockade.cluster.https import HttpTls
from stockade.raft.net.tls import Tls, TlsFault, TlsFiles


def certs(out: Path, *arguments: str, cluster_id: str = "orders-prod") -> Result:
    return CliRunner().invoke(main, ["certs", "--out", str(out), "--cluster-id", cluster_id, *arguments])


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def days_left(certificate: Path) -> int:
    left = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc - datetime.now(UTC)
    return round(left / timedelta(days=1))


def sections(output: str) -> list[dict[str, str]]:
    """What is printed to be pasted, parsed."""
    return [tomllib.loads("[raft.tls]" + part)["raft"]["tls"] for part in output.split("[raft.tls]")[1:]]


def test_every_node_gets_its_files_and_the_printed_lines_lead_there(tmp_path: Path) -> None:
    done = certs(tmp_path / "made" / "certs", "n1", "n2")
    assert done.exit_code == 0, done.output
    directory = tmp_path / "made" / "certs"
    assert set(contents(directory)) == {"ca.crt", "ca.key", "n1.crt", "n1.key", "n2.crt", "n2.key"}
    assert all(f"made {path}\n" in done.stdout for path in directory.iterdir())
    for node_id, section in zip(["n1", "n2"], sections(done.stdout), strict=True):
        paths = {name: str(directory.parent / path) for name, path in section.items()}
        Tls(TlsFiles(**paths), "orders-prod", node_id)


def test_only_the_owner_reads_the_keys(tmp_path: Path) -> None:
    certs(tmp_path, "n1")
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.key")} == {
        "ca.key": 0o600,
        "n1.key": 0o600,
    }


def test_a_node_is_added_later_under_the_same_authority(tmp_path: Path) -> None:
    certs(tmp_path, "n1")
    before = contents(tmp_path)
    assert certs(tmp_path, "n2").exit_code == 0
    after = contents(tmp_path)
    assert after.keys() - before.keys() == {"n2.crt", "n2.key"}
    assert {name: after[name] for name in before} == before
    Tls(TlsFiles(*(str(tmp_path / name) for name in ("ca.crt", "n2.crt", "n2.key"))), "orders-prod", "n2")


@pytest.mark.parametrize("there", ["n2.crt", "n2.key"])
def test_a_file_that_exists_is_not_overwritten_and_no_other_is_made(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("precious")
    refused = certs(tmp_path, "n1", "n2")
    assert refused.exit_code == 1
    assert f"this exists: {tmp_path / there}; move it away to make it anew" in refused.stderr
    assert contents(tmp_path) == {there: b"precious"}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a full disk: writes stop half-way."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [100, 300])
def test_a_full_disk_leaves_no_part_of_an_authority_and_the_error_names_the_file(tmp_path: Path, size: int) -> None:
    with files_of_at_most(size):
        done = certs(tmp_path, "n1")
    assert (done.exit_code, f"{tmp_path}/ca.crt cannot be written: File too large" in done.stderr) == (1, True)
    assert contents(tmp_path) == {}
    assert certs(tmp_path, "n1").exit_code == 0


def test_a_certificate_whose_key_cannot_be_written_goes_too_and_the_authority_is_used_again(tmp_path: Path) -> None:
    certs(tmp_path, "n0")
    before = contents(tmp_path)
    (tmp_path / "n1.key").symlink_to(tmp_path / "nowhere")  # no file that exists, and none that can be made
    done = certs(tmp_path, "n1")
    assert (done.exit_code, f"{tmp_path}/n1.key cannot be written" in done.stderr) == (1, True)
    (tmp_path / "n1.key").unlink()
    assert contents(tmp_path) == before
    assert certs(tmp_path, "n1").exit_code == 0


@pytest.mark.parametrize("missing", ["ca.crt", "ca.key"])
def test_half_an_authority_is_neither_used_nor_replaced(tmp_path: Path, missing: str) -> None:
    certs(tmp_path, "n1")
    (tmp_path / missing).unlink()
    before = contents(tmp_path)
    refused = certs(tmp_path, "n2")
    assert (refused.exit_code, contents(tmp_path)) == (1, before)
    assert missing in refused.stderr


def test_the_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    certs(tmp_path / "a", "n1")
    certs(tmp_path / "b", "n1")
    (tmp_path / "a" / "ca.key").write_bytes((tmp_path / "b" / "ca.key").read_bytes())
    refused = certs(tmp_path / "a", "n2")
    assert refused.exit_code == 1
    assert "ca.key is not the key of ca.crt" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "days"), [([], NODE_DAYS), (["--days", "1"], 1), (["--days", str(CA_DAYS)], CA_DAYS)]
)
def test_certificates_last_as_long_as_asked_for(tmp_path: Path, arguments: list[str], days: int) -> None:
    certs(tmp_path, "n1", *arguments)
    assert (days_left(tmp_path / "n1.crt"), days_left(tmp_path / "ca.crt")) == (days, CA_DAYS)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a b"],
        ["../n1"],
        ["a/b"],
        ["n" * 250],
        ["n1", "n1"],
        ["ca"],
        ["n1", "--days", "0"],
        ["n1", "--days", "3651"],
    ],
)
def test_wrong_use_is_told_and_makes_nothing(tmp_path: Path, arguments: list[str]) -> None:
    assert certs(tmp_path / "out", *arguments).exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_cluster_cannot_be_called_just_anything(tmp_path: Path) -> None:
    assert certs(tmp_path / "out", "n1", cluster_id="a/b").exit_code == 2


def test_the_longest_names_are_taken(tmp_path: Path) -> None:
    node_id, cluster_id = "n" * 249, "c" * 249
    assert certs(tmp_path, node_id, cluster_id=cluster_id).exit_code == 0
    files = TlsFiles(*(str(tmp_path / name) for name in ("ca.crt", f"{node_id}.crt", f"{node_id}.key")))
    Tls(files, cluster_id, node_id)


def test_a_machine_gets_one_certificate_for_all_of_its_nodes(tmp_path: Path) -> None:
    done = certs(tmp_path / "certs", "a", "b", "--processes", "2")
    assert done.exit_code == 0, done.output
    assert set(contents(tmp_path / "certs")) == {"ca.crt", "ca.key", "a.crt", "a.key", "b.crt", "b.key"}
    for machine, section in zip(["a", "b"], sections(done.stdout), strict=True):
        files = TlsFiles(**{name: str(tmp_path / path) for name, path in section.items()})
        for number in (1, 2):
            Tls(files, "orders-prod", f"{machine}.{number}")


def test_a_node_with_hosts_gets_https_as_well_and_the_printed_sections_make_a_configuration(tmp_path: Path) -> None:
    done = certs(tmp_path / "certs", "n1=n1.example.com,10.0.0.1,::1", "n2", "--client", "app")
    assert done.exit_code == 0, done.output
    certificate = x509.load_pem_x509_certificate((tmp_path / "certs" / "n1.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1.example.com"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]
    n1, n2 = done.stdout.split("# for node.toml of")[1:]
    assert "[http_tls]" not in n2
    member = 'node_id = "n1"\nurl = "https://n1.example.com:7101"\nraft = "127.0.0.1:7201"\n'
    head = 'node_id = "n1"\ncluster_id = "orders-prod"\ndata_dir = "d"\nhttp = "127.0.0.1:7101"\n'
    text = f'{head}raft_listen = "127.0.0.1:7201"\n{n1.partition(chr(10))[2]}\n[[members]]\n{member}'
    (tmp_path / "node.toml").write_text(text)
    config = load(tmp_path / "node.toml")
    assert config.http_tls is not None
    HttpTls(config.http_tls)


def test_a_client_s_certificate_passes_for_no_node(tmp_path: Path) -> None:
    certs(tmp_path, "n1", "--client", "n2")
    with pytest.raises(TlsFault):
        Tls(TlsFiles(*(str(tmp_path / name) for name in ("ca.crt", "n2.crt", "n2.key"))), "orders-prod", "n2")


@pytest.mark.parametrize("wrong", [["n1=a b"], ["n1="], [], ["n1", "--client", "n1"], ["--client", "ca"]])
def test_bad_hosts_and_names_are_refused_and_nothing_is_made(tmp_path: Path, wrong: list[str]) -> None:
    assert certs(tmp_path, *wrong).exit_code == 2
    assert contents(tmp_path) == {}
