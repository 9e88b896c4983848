"""Write beside each wheel in a folder what it is made of, as CycloneDX 1.6: ``python tools/sbom.py dist``.

The components are those of ``requirements/run.txt``: versions, and for each the digests of the files that a container
may install. `make dist` runs this, where these packages are installed: what depends on what, and licenses, are as they
say themselves. The document has no random number and no time: the same wheel and lock give the same bytes.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from email import message_from_bytes
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "run.txt"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Pin(NamedTuple):
    """A package of the lock, and the SHA-256 of each file that may be installed."""

    name: str
    version: str
    digests: tuple[str, ...]


def pins(lock: str) -> Iterator[Pin]:
    """The packages that the text of a lock pins."""
    for name, version, rest in _PIN.findall(lock):
        yield Pin(canonicalize_name(name), version, tuple(_DIGEST.findall(rest)))


def document(wheel: Path, lock: str) -> str:
    """The CycloneDX document of a wheel that runs with these packages."""
    name, version, _, _ = parse_wheel_filename(wheel.name)
    root = _component(name, str(version), ComponentType.APPLICATION)
    root.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=sha256(wheel.read_bytes()).hexdigest()))
    bom = Bom(components=[])
    bom.metadata.component = root
    found = {pin.name: _locked(pin) for pin in pins(lock)}
    for component in found.values():
        bom.components.add(component)
    wanted = {pin: _installed(pin) for pin in found}
    for component, texts in ((root, _of_wheel(wheel)), *((found[pin], texts) for pin, texts in wanted.items())):
        needed = {canonicalize_name(each) for each in _names(texts)}
        bom.register_dependency(component, [found[each] for each in sorted(needed & found.keys())])
    written = json.loads(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string())
    del written["serialNumber"], written["metadata"]["timestamp"]
    return json.dumps(written, indent=1) + "\n"


def _component(name: str, version: str, kind: ComponentType) -> Component:
    url = PackageURL("pypi", None, name, version)
    component = Component(name=name, version=version, type=kind, purl=url, bom_ref=str(url))
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:  # of another system or Python
        return component
    if "License-Expression" in about:
        component.licenses.add(LicenseExpression(about["License-Expression"]))
    elif "License" in about and "\n" not in (license_name := about["License"]):
        component.licenses.add(DisjunctiveLicense(name=license_name))
    return component


def _locked(pin: Pin) -> Component:
    component = _component(pin.name, pin.version, ComponentType.LIBRARY)
    digests = [HashType(alg=HashAlgorithm.SHA_256, content=each) for each in pin.digests]
    where = XsUri(f"requirements/run.txt#{pin.name}")
    component.external_references.add(
        ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=where, hashes=digests)
    )
    return component


def _of_wheel(wheel: Path) -> Sequence[str]:
    """The requirements in a wheel's metadata."""
    with ZipFile(wheel) as file:
        (name,) = (each for each in file.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_bytes(file.read(name)).get_all("Requires-Dist", [])


def _installed(name: str) -> Sequence[str]:
    """The requirements of an installed package; none for one that is not installed."""
    try:
        return metadata.requires(name) or ()
    except metadata.PackageNotFoundError:
        return ()


def _names(texts: Sequence[str]) -> Iterator[str]:
    """The names of the packages that these requirements want on this system and Python, without extras."""
    for each in map(Requirement, texts):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            yield each.name


def main(folder: Path) -> None:
    """Write the document of each wheel in ``folder``."""
    for wheel in sorted(folder.glob("*.whl")):
        path = wheel.with_suffix(".cdx.json")
        path.write_text(document(wheel, LOCK.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{path}: what {wheel.name} is made of")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
