"""The commit from which this software was built, as `setup.py` wrote it into the package, or git says of a checkout."""

import subprocess
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"
GIT_TIMEOUT_S = 5.0
BAKED = "COMMIT"
"""A file in the installed package, or at the root of a source distribution."""
_ROOT = Path(__file__).resolve().parents[1]
"""The package where it is installed, the root of a checkout: links lead there."""


@cache
def commit() -> str:
    """The commit's id; with -dirty behind it where the checkout has other content; UNKNOWN without git."""
    baked = _ROOT / BAKED
    if baked.is_file():
        return baked.read_text(encoding="utf-8").strip() or UNKNOWN
    if not (_ROOT / ".git").exists():
        return UNKNOWN
    words = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        # A list of words, no shell; git is the one that the developer uses.
        told = subprocess.run(words, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)  # noqa: S603  # nosec B603
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return told.stdout.strip() or UNKNOWN
