"""Pastes the blocks of a page of docs/ into one shell, in order, as a reader does.

- A block ``sh`` runs. A block ``python`` whose first line is ``# NAME.py`` is saved under that name; another one runs.
- Each line of a block ``text`` must be printed, in that order; digits stand for any digits, and ``…`` for any text.
- ``<!-- not pasted: REASON -->`` on the line before a block leaves it out. Blocks of other languages are for reading.

The addresses of the nodes of a cluster with default ports become those of the test's cluster.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stockade.cli.local_cluster.cluster import LocalCluster

ROOT = Path(__file__).parents[2]
DEFAULT_PORTS = (7101, 7102, 7103)
PASTE_TIMEOUT_S = 250.0

_FENCE = re.compile(
    r"^(?:<!-- not pasted: (?P<excuse>[^\n]+) -->\n)?"
    r"(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_NAMED = re.compile(r"# (?P<name>\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """A block of a page; ``excuse`` says why it is not pasted."""

    language: str
    text: str
    excuse: str | None = None


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    for found in _FENCE.finditer(page):
        yield Block(found["language"], found["text"], found["excuse"])


def script(page: str) -> str:
    """One shell script of all blocks that are pasted."""
    return "\n".join(_pasted(block) for block in blocks(page) if block.excuse is None)


def _pasted(block: Block) -> str:
    if block.language == "python":
        named = _NAMED.match(block.text)
        target = f"cat > {named['name']}" if named else "python -"
        return f"{target} <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK\n"
    return block.text if block.language == "sh" else ""


def promised(page: str) -> list[str]:
    """The lines that a page says are printed."""
    return [
        line
        for block in blocks(page)
        if block.language == "text" and block.excuse is None
        for line in block.text.splitlines()
        if line
    ]


def missing(lines: list[str], output: str) -> str | None:
    """The first of the promised lines that the output does not have after those before it; None when it has all."""
    printed = iter(output.splitlines())
    for line in lines:
        parts = [re.sub(r"\d+", r"\\d+", re.escape(part)) for part in line.strip().split("…")]
        pattern = re.compile(".*".join(parts))
        if not any(pattern.fullmatch(each.strip()) for each in printed):
            return line
    return None


def paste(page: str, cluster: LocalCluster, folder: Path) -> str:
    """Run a page's blocks in ``folder`` against ``cluster``; what they print. Fails when one of them fails."""
    text = script(page).replace("data/cluster.json", str(cluster.data / "cluster.json"))
    for port, node in zip(DEFAULT_PORTS, cluster.nodes, strict=True):
        text = re.sub(rf"\b{port}\b", node.http.rpartition(":")[2], text)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "STOCKADE_URL": ",".join(node.url for node in cluster.nodes),
    }
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = shell.communicate(timeout=PASTE_TIMEOUT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    assert shell.returncode == 0, f"{output}\n{errors}"
    return output
