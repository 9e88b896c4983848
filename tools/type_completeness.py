"""Checks that every public name has a declared type, so that no type checker must infer it: ``python
tools/type_completeness.py``.

It asks ``pyright --verifytypes``, in the shape that PyPI has whole (basedpyright). Types that other packages do not
tell are not ours to mend; what stands on Spark is looked at only where Spark is installed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMAND = ("basedpyright", "--verifytypes", "stockade", "--ignoreexternal", "--outputjson")
NEEDS_SPARK = "stockade.spark."
FOLLOWS = ("type unknown", "partially unknown")


def faults(report: dict[str, Any], *, with_spark: bool) -> Iterator[str]:
    """One line for each public name whose type is not known, or could be inferred in several ways.

    What is unknown only because it is made of such a name follows from it, and is left out if there is a first cause.
    """
    found = list(_faults(report, with_spark=with_spark))
    causes = [line for line in found if not line.endswith(FOLLOWS)]
    yield from causes or found


def _faults(report: dict[str, Any], *, with_spark: bool) -> Iterator[str]:
    for symbol in report["typeCompleteness"]["symbols"]:
        is_known = symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]
        is_looked_at = symbol["isExported"] and (with_spark or not symbol["name"].startswith(NEEDS_SPARK))
        if is_looked_at and not is_known:
            why = next((found["message"].partition("\n")[0] for found in symbol["diagnostics"]), "type unknown")
            yield f"{symbol['name']}: {why}"


def ask() -> dict[str, Any]:
    """The report of pyright about the package in the working tree."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    asked = subprocess.run(COMMAND, env=environment, stdout=subprocess.PIPE, check=False)
    report: dict[str, Any] = json.loads(asked.stdout)
    return report


def main() -> None:
    """Print the faults and how many public names there are; the exit code is 1 if there is a fault, or no name."""
    report = ask()
    found = list(faults(report, with_spark=find_spec("pyspark") is not None))
    for line in found:
        print(line)
    names = sum(symbol["isExported"] for symbol in report["typeCompleteness"]["symbols"])
    print(f"{names:,} public names; without a type of their own: {len(found)}")
    sys.exit(1 if found or not names else 0)


if __name__ == "__main__":
    main()
