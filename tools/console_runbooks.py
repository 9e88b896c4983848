"""Write http_api/assets/console/runbooks.json: docs/runbooks as the console shows them beside what needs attention.

Run as ``python tools/console_runbooks.py`` after a change of a runbook; a test compares the two. A node serves the
file itself, so that a runbook is there when the network to anywhere else is not.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "runbooks"
TARGET = ROOT / "http_api" / "assets" / "console" / "runbooks.json"

_ITEM = re.compile(r"(?:-|\d+\.) +(.*)")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")


def pages() -> str:
    """The content of runbooks.json: by the name of each page, its blocks."""
    found = {path.stem: page(path.read_text(encoding="utf-8")) for path in sorted(PAGES.glob("*.md"))}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n"


def page(text: str) -> list[dict[str, Any]]:
    """The blocks of a page below its title, in order; Markdown remains only as `code` in texts."""
    return list(_blocks(text.splitlines()[1:]))


def _blocks(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    paragraph: list[str] = []
    items: list[str] = []
    code: list[str] | None = None
    for line in [*lines, ""]:
        if code is not None:
            if line == "```":
                yield {"code": "\n".join(code)}
                code = None
            else:
                code.append(line)
            continue
        item = _ITEM.match(line)
        if item and not paragraph:  # a line of a paragraph may begin with a number
            items.append(item[1])
        elif items and line.startswith(" "):
            items[-1] += f" {line.strip()}"
        elif line and not line.startswith(("#", "```", "<!--")):
            paragraph.append(line)
        else:
            yield from _ended(paragraph, items)
            paragraph, items = [], []
            if line.startswith("#"):
                yield {"title": line.lstrip("# ")}
            elif line.startswith("```"):
                code = []


def _ended(paragraph: list[str], items: list[str]) -> Iterator[dict[str, Any]]:
    if paragraph:
        yield {"text": _plain(" ".join(paragraph))}
    if items:
        yield {"items": [_plain(item) for item in items]}


def _plain(text: str) -> str:
    """The text without emphasis and link targets: the console may be served where the other documents are not."""
    return re.sub(r"(?<![`\w])\*+([^*]+)\*+", r"\1", _LINK.sub(r"\1", text))


if __name__ == "__main__":
    TARGET.write_text(pages(), encoding="utf-8")
