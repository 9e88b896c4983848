"""The document beside the wheel names each package that it runs with, by version and digests."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

pytest.importorskip("cyclonedx")
import sbom  # after what it needs

LOCK = """# Said.
click==8.1.7 ; python_full_version < '3.14' \\
    --hash=sha256:{0} \\
    --hash=sha256:{1}
no-such-package==2 \\
    --hash=sha256:{1}
""".format("a" * 64, "b" * 64)
METADATA = """Metadata-Version: 2.4
Name: fence
Version: 1.2
Requires-Dist: Click>=8
Requires-Dist: no_such.package
Requires-Dist: rich; extra == 'pretty'
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "fence-1.2-py3-none-any.whl"
    with ZipFile(path, "w") as file:
        file.writestr("fence-1.2.dist-info/METADATA", METADATA)
    return path


@pytest.fixture
def written(wheel: Path) -> Any:
    return json.loads(sbom.document(wheel, LOCK))


def test_the_wheel_is_named_by_its_digest(written: Any, wheel: Path) -> None:
    about = written["metadata"]["component"]
    assert (about["name"], about["version"], about["type"]) == ("fence", "1.2", "application")
    assert about["hashes"] == [{"alg": "SHA-256", "content": sha256(wheel.read_bytes()).hexdigest()}]
    assert (written["bomFormat"], written["specVersion"]) == ("CycloneDX", "1.6")


def test_components_are_those_of_the_lock_with_their_digests(written: Any) -> None:
    assert {
        each["purl"]: [digest["content"] for digest in each["externalReferences"][0]["hashes"]]
        for each in written["components"]
    } == {"pkg:pypi/click@8.1.7": ["a" * 64, "b" * 64], "pkg:pypi/no-such-package@2": ["b" * 64]}


def test_the_bill_of_materials_names_needs_of_the_wheel_but_no_extras(written: Any) -> None:
    needed = {each["ref"]: each.get("dependsOn", []) for each in written["dependencies"]}
    assert needed["pkg:pypi/fence@1.2"] == ["pkg:pypi/click@8.1.7", "pkg:pypi/no-such-package@2"]


def test_the_same_wheel_and_lock_give_the_same_bytes(wheel: Path) -> None:
    assert sbom.document(wheel, LOCK) == sbom.document(wheel, LOCK)
    assert "://" not in sbom.document(wheel, LOCK).replace("http://cyclonedx.org/schema/", "")
