"""Runs the programs that change the kernel's network, and says which of them are missing."""

import shutil
import subprocess
from collections.abc import Sequence

TOOLS = {"ip": "iproute2", "iptables": "iptables", "nsenter": "util-linux"}
"""Each program that is needed, and Debian's package that brings it."""


class NetworkFailed(OSError):
    """The network could not be made or changed; the message says what the program said."""


def run(*command: str) -> str:
    """What a command printed. Raises NetworkFailed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise NetworkFailed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def missing(tools: Sequence[str] = tuple(TOOLS)) -> str | None:
    """What to install so that these programs are there; None when they are."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if not absent:
        return None
    packages = sorted({TOOLS[tool] for tool in absent})
    return f"missing: {', '.join(absent)} (Debian: apt install {' '.join(packages)})"
