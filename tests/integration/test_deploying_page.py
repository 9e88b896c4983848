"""docs/deploying.md: its configurations pass `stockade serve --check`, with the certificates that its command makes."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from .pages import ROOT, blocks

PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
TABLES = [textwrap.dedent(block.text) for block in blocks(PAGE) if block.language == "toml"]
NODE, TRUSTED, MACHINE, HTTPS, PRINCIPALS, ISSUERS, TOKENS, JOINING = TABLES
[CERTS] = [block.text for block in blocks(PAGE) if block.language == "sh" and block.excuse is None]


def stockade(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "stockade", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check(folder: Path, text: str) -> None:
    (folder / "node.toml").write_text(text.replace("/var/lib/stockade", str(folder / "data")))
    for _ in range(2):
        stockade(folder, "serve", "--check", "--config", "node.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the page's command has made certificates."""
    [line] = CERTS.splitlines()
    stockade(tmp_path, *line.split()[1:])
    return tmp_path


def test_a_configuration_with_certificates_principals_and_tokens_passes_the_check(folder: Path) -> None:
    check(folder, NODE + HTTPS + PRINCIPALS + TOKENS)


def test_an_issuer_of_tokens_passes_the_check_when_its_keys_are_there(folder: Path) -> None:
    public = ed25519.Ed25519PrivateKey.generate().public_key()
    keys = {"keys": [jwt.algorithms.OKPAlgorithm.to_jwk(public, as_dict=True)]}
    (folder / "certs" / "corp-jwks.json").write_text(json.dumps(keys))
    check(folder, NODE + HTTPS + PRINCIPALS + ISSUERS)
    (folder / "certs" / "corp-jwks.json").write_text("{}")
    words = [sys.executable, "-m", "stockade", "serve", "--check", "--config", "node.toml"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "issuers.corp.keys: no JWK set" in done.stderr


def test_a_machine_of_several_nodes_passes_the_check_with_one_certificate(folder: Path) -> None:
    [words] = [line.partition("stockade certs ")[2] for line in MACHINE.splitlines() if "stockade certs " in line]
    stockade(folder, "certs", *words.split())
    check(folder, MACHINE + HTTPS.replace("n1.", "a.") + PRINCIPALS)


def test_a_new_node_has_the_settings_of_the_others_and_names_them_under_join(folder: Path) -> None:
    stockade(folder, "certs", "--out", "certs", "--cluster-id", "orders-prod", "n4")
    as_above = ("data_dir", "http ", "raft_listen")
    plain = [line for line in NODE.splitlines() if line.startswith(as_above)]
    tables = NODE[NODE.index("[raft.tls]") : NODE.index("[limits]")]
    before, rest = JOINING.split("# data_dir, http, raft_listen, [raft.tls], [http_tls], [[principals]] as above\n")
    mine = "\n".join([*plain, tables]).replace("10.0.0.1", "10.0.0.4").replace("n1.", "n4.")
    check(folder, f"{before}{mine}{HTTPS.replace('n1.', 'n4.')}{PRINCIPALS}{rest}")


def test_on_a_trusted_network_three_words_stand_for_certificates_and_principals(tmp_path: Path) -> None:
    plain, tables = NODE[: NODE.index("[raft]")], NODE[NODE.index("[[members]]") :]
    check(tmp_path, plain + TRUSTED + tables)
    (tmp_path / "node.toml").write_text(plain + tables)
    words = [sys.executable, "-m", "stockade", "serve", "--check", "--config", "node.toml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    for word in ("http_plaintext = true", "open_to_all = true", "raft.plaintext = true"):
        assert word in done.stderr
