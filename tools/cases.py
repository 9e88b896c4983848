"""Where each numbered case of SEMANTICS 11 is tested: tests bear the number in their name. Prints a table, and gaps."""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAST = 124
NOT_ASKED_FOR = {119}
"""append_multi."""
CLIENT = set(range(94, 115))

_TEST = re.compile(r"^\s*(?:async )?def (test(?:_\d{1,3})+_\w+)\(", re.MULTILINE)
_ID = re.compile(r"""\bid="(\d{1,3})-([\w-]+)\"""")


def find() -> dict[int, list[str]]:
    """Test names by case."""
    found: dict[int, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        place = path.relative_to(ROOT)
        for name in _TEST.findall(source):
            for number in re.findall(r"_(\d{1,3})(?=_)", re.match(r"test(?:_\d{1,3})+_", name)[0]):  # type: ignore[index]
                found[int(number)].append(f"{place}::{name}")
        for number, rest in _ID.findall(source):
            found[int(number)].append(f"{place} [{rest}]")
    return found


def main() -> None:
    """Print every case from 1 to the last, with its tests."""
    found = find()
    for number in range(1, LAST + 1):
        for test in found.get(number, ()):
            print(f"{number:4} {test}")
    missing = [n for n in range(1, LAST + 1) if n not in found and n not in NOT_ASKED_FOR | CLIENT]
    print("without a test:", ", ".join(map(str, missing)) or "none")


if __name__ == "__main__":
    main()
