"""The project's own files, for the tests that hold them to the house rules."""

import subprocess
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent


@cache
def tracked() -> tuple[PurePosixPath, ...]:
    """Every file under version control, links left out. What is not under it yet is not judged yet."""
    # The checkout may be another user's (CI may mount one): listing its files is harmless.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [PurePosixPath(name) for name in listed.split("\0") if name]
    return tuple(path for path in paths if (ROOT / path).is_file() and not (ROOT / path).is_symlink())


def python(*folders: str) -> list[PurePosixPath]:
    """The Python files under some top-level folders."""
    return [path for path in tracked() if path.suffix == ".py" and path.parts[0] in folders]


def text(path: PurePosixPath) -> str:
    """What a file holds."""
    return (ROOT / path).read_text(encoding="utf-8")


def report(faults: list[str]) -> None:
    """Fail with every fault on a line of its own."""
    assert not faults, "\n" + "\n".join(faults)
