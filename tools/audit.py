"""Ask a service of vulnerabilities about every locked package: `make audit`.

pip-audit asks; this file judges its answers, since it calls a package fine which the service does not know. A service
is needed: the registry's own, or OSV (``make audit SERVICE=osv``). Without one nothing is known: the exit code is 2.
CI does not run this: a new advisory, or a service that is away, is no fault of a change.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "requirements"
FINE, VULNERABLE, UNKNOWN = 0, 1, 2


def judge(dependencies: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """The exit code, and the lines to print, for what pip-audit says about each package (its format ``json``)."""
    lines = [
        f"{each['name']} {each['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for each in dependencies
        for found in each.get("vulns", ())
    ]
    unknown = [each["name"] for each in dependencies if "skip_reason" in each]
    if unknown:
        lines.append(
            f"{len(unknown)} of {len(dependencies)} packages were not audited, because the service does not know"
            f" them: {', '.join(unknown[:5])}, ... Is there a service of vulnerabilities here at all?"
        )
    if any(each.get("vulns") for each in dependencies):
        return VULNERABLE, lines
    return (UNKNOWN if unknown or not dependencies else FINE), lines


def main(arguments: Sequence[str]) -> int:
    """Audit all locks. Returns the exit code."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(FOLDER.glob("*.txt")):
        command = ["pip-audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
        asked = subprocess.run([*command, *arguments, "-r", str(path)], capture_output=True, text=True, check=False)
        if not asked.stdout.strip():
            last = asked.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            print(f"{path.name} was not audited. Is there a service of vulnerabilities here at all?\n{last[0]}")
            return UNKNOWN
        found |= {f"{each['name']} {each.get('version')}": each for each in json.loads(asked.stdout)["dependencies"]}
    code, lines = judge([*found.values()])
    said = {FINE: "no known vulnerability", VULNERABLE: "vulnerable", UNKNOWN: "nothing is known"}[code]
    print(*lines, f"{len(found)} packages: {said}", sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
