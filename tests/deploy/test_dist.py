"""A release is the same bytes in each clone, and what pip installs from it runs and knows its commit."""

import os
import subprocess
import sys
import tarfile
import venv
from hashlib import sha256
from pathlib import Path

import pytest
from sources import ROOT

from stockade.partition.version import VERSION

from .conftest import clone, dist

pytestmark = pytest.mark.timeout(600)

FOLDERS = ("chaos", "cli", "client", "cluster", "http_api", "partition", "raft", "spark")
SDIST = f"stockade-{VERSION}"


def digests(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_two_clones_of_a_commit_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """Whatever their modes, times and the umask are, and what else lies in them."""
    other = clone(tmp_path / "a" / "folder" / "of another length")
    for path in (other / "cli").rglob("*.py"):
        path.chmod(0o600)
        os.utime(path, (1, 1))
    (other / "raft" / "left_over.py").write_text("print('not committed')\n")
    before = os.umask(0o077)
    try:
        again = dist(other)
    finally:
        os.umask(before)
    assert digests(again) == digests(built)
    assert set(digests(built)) == {
        "SHA256SUMS",
        f"{SDIST}.tar.gz",
        f"{SDIST}-py3-none-any.whl",
        f"{SDIST}-py3-none-any.cdx.json",
    }
    checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=built, check=False, capture_output=True)
    assert checked.returncode == 0, checked.stdout


def test_a_release_wants_its_tag_and_its_date_in_the_changelog(tmp_path: Path) -> None:
    checkout = clone(tmp_path / "clone")

    def tried() -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "tools/dist.py", "--release", "--out", str(tmp_path / "out")]
        return subprocess.run(words, cwd=checkout, check=False, capture_output=True, text=True)

    assert "no tag" in tried().stderr
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## {VERSION} (unreleased)", f"## {VERSION} (2026-12-01)"))
    assert "not committed" in tried().stderr
    subprocess.run([*git, "commit", "--all", "--quiet", "--message", "release"], cwd=checkout, check=True)
    subprocess.run([*git, "tag", f"v{VERSION}"], cwd=checkout, check=True)
    released = tried()
    assert released.returncode == 0, released.stderr
    assert (tmp_path / "out" / "SHA256SUMS").exists()


def test_a_source_distribution_has_each_folder_in_its_place_and_the_links_to_them(built: Path) -> None:
    with tarfile.open(built / f"{SDIST}.tar.gz") as archive:
        members = {member.name.removeprefix(f"{SDIST}/"): member for member in archive}
    for folder in FOLDERS:
        assert members[f"src/stockade/{folder}"].linkname == f"../../{folder}"
        assert f"{folder}/__init__.py" in members
    tracked = subprocess.check_output(["git", "ls-files", *FOLDERS, "ops", "docs", "requirements"], cwd=ROOT, text=True)
    assert not {name for name in tracked.splitlines() if name not in members}
    assert {"COMMIT", "LICENSE", "CHANGELOG.md", "pyproject.toml", "setup.py", "PKG-INFO"} <= members.keys()
    assert {(each.uid, each.gid, each.uname) for each in members.values()} == {(0, 0, "")}


def test_pip_installs_the_source_distribution_and_the_command_knows_its_commit(built: Path, tmp_path: Path) -> None:
    """With the dependencies of this environment: that pip finds those of the locks is tried with the image."""
    into = tmp_path / "venv"
    venv.create(into)
    (site,) = (into / "lib").glob("python3.*/site-packages")
    (here,) = (path for path in sys.path if path.endswith("site-packages"))
    (site / "these.pth").write_text(f"{here}\n")
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--ignore-installed", "--no-index"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", into / "bin" / "python", *install, str(built / f"{SDIST}.tar.gz")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    said = subprocess.check_output([into / "bin" / "stockade", "--version"], text=True, cwd=tmp_path)
    assert said == f"stockade {VERSION} ({commit})\n"
    assert (site / "stockade" / "http_api" / "assets" / "openapi.json").exists()
    assert not (site / "stockade" / "raft").is_symlink()
