"""The runbooks that a node serves are those of docs/runbooks, and each alert has one."""

import json
import re

from console_runbooks import PAGES, ROOT, TARGET, page, pages


def test_the_file_is_what_the_tool_writes_now() -> None:
    assert TARGET.read_text(encoding="utf-8") == pages(), "run `python tools/console_runbooks.py`"


def test_every_alert_and_every_runbook_that_the_console_names_is_in_it() -> None:
    found = set(json.loads(pages()))
    alerts = (ROOT / "ops" / "alerts.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"alert: (\w+)", alerts)) <= found
    overview = (TARGET.parent / "views" / "overview.js").read_text(encoding="utf-8")
    named = set(re.findall(r'runbook: "(\w+)"', overview))
    assert len(named) > 5
    assert named <= found


def test_no_word_of_a_page_is_lost() -> None:
    words = re.compile(r"[A-Za-z0-9_/.-]{3,}")
    for path in PAGES.glob("*.md"):
        source = path.read_text(encoding="utf-8").split("\n", 1)[1]
        source = re.sub(r"\]\([^)]*\)|<!--.*?-->", "]", source).replace("```sh", "")
        told = json.dumps(page(path.read_text(encoding="utf-8")), ensure_ascii=False).encode().decode("unicode_escape")
        assert [word for word in words.findall(source) if word not in told] == []


def test_paragraphs_lists_and_commands_stay_apart() -> None:
    text = "# A\n\n*Page.* One\ntwo.\n\n## Do\n\n- first\n  of it, [here](x.md)\n- second\n\n1. third\n\n"
    text += "<!-- not pasted: a note for those who test the page -->\n```sh\nrun this\n```\n"
    assert page(text) == [
        {"text": "Page. One two."},
        {"title": "Do"},
        {"items": ["first of it, here", "second"]},
        {"items": ["third"]},
        {"code": "run this"},
    ]
