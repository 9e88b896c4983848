"""What the tests of this folder share: the distributions of this commit, and an image's files without an engine."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sources import ROOT

from .image import NOBODY, Image, unprivileged


def clone(into: Path) -> Path:
    """A clone of this commit: what is not committed is not in it."""
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "--quiet", "--no-hardlinks", ROOT, into], check=True)
    return into


def dist(of: Path) -> Path:
    """The folder of the distributions that ``make dist`` builds of a clone."""
    pytest.importorskip("build", reason="`make test` installs it for these tests: requirements/deploy.txt")
    words = [sys.executable, "tools/dist.py"]
    done = subprocess.run(words, cwd=of, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return of / "dist"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dist(clone(tmp_path_factory.mktemp("first") / "clone"))


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """What the Dockerfile makes of a clone, in a folder that others may read."""
    folder = Path(tempfile.mkdtemp(prefix="stockade-image-"))
    folder.chmod(0o755)
    try:
        made = Image(folder)
        made.build(clone(folder / "src"))
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def volume() -> Iterator[Path]:
    """A folder that belongs to the user of the image."""
    folder = Path(tempfile.mkdtemp(prefix="stockade-volume-"))
    if unprivileged():
        os.chown(folder, NOBODY, NOBODY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
