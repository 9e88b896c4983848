"""A node knows from which commit it was built, in a checkout, from a package, and where neither says."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from stockade.cli.main import main
from stockade.cluster import build
from stockade.partition.version import VERSION


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(build, "_ROOT", tmp_path)
    build.commit.cache_clear()
    yield tmp_path
    build.commit.cache_clear()


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    return subprocess.check_output(["git", "-C", folder, *who, *words], text=True).strip()


def test_a_package_says_what_was_written_into_it(root: Path) -> None:
    (root / "COMMIT").write_text("c0ffee\n")
    assert build.commit() == "c0ffee"
    assert CliRunner().invoke(main, ["--version"]).output == f"stockade {VERSION} (c0ffee)\n"


def test_a_checkout_says_its_commit_and_whether_it_has_other_content(root: Path) -> None:
    git(root, "init", "--quiet")
    (root / "file").write_text("1")
    git(root, "add", "file")
    git(root, "commit", "--quiet", "--message", "one")
    git(root, "tag", "v1")
    assert build.commit() == git(root, "rev-parse", "HEAD")
    (root / "file").write_text("2")
    build.commit.cache_clear()
    assert build.commit() == git(root, "rev-parse", "HEAD") + "-dirty"


def test_without_git_the_commit_is_unknown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.commit() == "unknown"
    (root / ".git").mkdir()
    build.commit.cache_clear()
    assert build.commit() == "unknown", "no repository"
    monkeypatch.setenv("PATH", "")
    build.commit.cache_clear()
    assert build.commit() == "unknown", "no git"
