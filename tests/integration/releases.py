"""The release before this one, as a folder from which its nodes run beside those of the working tree."""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PREVIOUS = (Path(__file__).parent / "previous_release.txt").read_text(encoding="ascii").strip()
"""The commit of the release before this one. A new release writes the commit of the last one there."""


def previous_release(folder: Path) -> Path:
    """What to put on PYTHONPATH to run it. Fails where the repository's history does not reach so far back."""
    done = subprocess.run(["git", "archive", PREVIOUS], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, (
        f"{done.stderr.decode()}the release before this one is built from commit {PREVIOUS}, which must be in the"
        " repository: `git fetch --unshallow`, or `git fetch origin` with this commit"
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    path = folder / "src"
    asked = command(path, "-c", "import stockade; print(stockade.__file__)")
    assert asked.stdout.strip() == str(path / "stockade" / "__init__.py"), asked.stdout + asked.stderr
    return path


def command(path: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with the release at ``path``."""
    environment = os.environ | {"PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def prefix(path: Path | None) -> Sequence[str]:
    """Words before a node's command that make it run the release at ``path``; None: the working tree."""
    return () if path is None else ("env", f"PYTHONPATH={path}")
