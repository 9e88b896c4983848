"""The table of threats in docs/security.md names tests that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`([a-z_/0-9]+\.py)::(test_\w+)`")


def test_each_threat_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [line for line in page.partition("| threat |")[2].splitlines() if line.startswith("| ")]
    assert len(rows) > 25
    for row in rows:
        found = NAMED.findall(row)
        assert found, row
        for path, name in found:
            assert f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), (path, name)
