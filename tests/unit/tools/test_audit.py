"""`make audit` calls packages fine only if a service of vulnerabilities knows each of them."""

from typing import Any

import audit
import pytest

FINE = {"name": "click", "version": "8.5.1", "vulns": []}
VULNERABLE = {"name": "rich", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
HOPELESS = {"name": "yarl", "version": "1.0", "vulns": [{"id": "PYSEC-2", "fix_versions": []}]}
SKIPPED = {"name": "isal", "skip_reason": "Dependency not found and could not be audited: isal"}


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([FINE], audit.FINE),
        ([FINE, VULNERABLE], audit.VULNERABLE),
        ([FINE, SKIPPED, VULNERABLE], audit.VULNERABLE),
        ([FINE, SKIPPED], audit.UNKNOWN),
        ([], audit.UNKNOWN),
    ],
)
def test_the_exit_code_says_what_is_known(found: list[dict[str, Any]], code: int) -> None:
    assert audit.judge(found)[0] == code


def test_lines_name_vulnerable_and_unknown_packages() -> None:
    _, lines = audit.judge([FINE, VULNERABLE, HOPELESS, SKIPPED])
    assert lines[:2] == ["rich 1.0: PYSEC-1, fixed in 1.1", "yarl 1.0: PYSEC-2, fixed in no version"]
    assert lines[2].startswith("1 of 4 packages were not audited, because the service does not know them: isal, ...")
