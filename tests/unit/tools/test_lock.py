"""What a container and CI install is locked: every requirement has a version that satisfies it, with hashes."""

import configparser
import re

import lock
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?: ; [^\\]*)?(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
HASHES = re.compile(r"\A(?: ?\\\n {4}--hash=sha256:[0-9a-f]{64})+\n\Z")


def text(name: str) -> str:
    return (lock.FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def pinned(name: str) -> dict[str, set[Version]]:
    """The versions of each package; several, where they depend on the Python."""
    found: dict[str, set[Version]] = {}
    for package, version, _ in PIN.findall(text(name)):
        found.setdefault(canonicalize_name(package), set()).add(Version(version))
    return found


def unsatisfied(name: str, requirements: list[str]) -> list[str]:
    """What a lock does not satisfy."""
    pins = pinned(name)
    wanted = [Requirement(each) for each in requirements]
    return [
        str(each)
        for each in wanted
        if not (versions := pins.get(canonicalize_name(each.name))) or not all(map(each.specifier.contains, versions))
    ]


@pytest.mark.parametrize("name", lock.LOCKS)
def test_a_lock_satisfies_its_requirements(name: str) -> None:
    assert unsatisfied(name, lock.requirements(lock.LOCKS[name])) == [], "run `make lock`"


@pytest.mark.parametrize("wanted", ["aiohttp<3", "no-such-package"])
def test_a_lock_that_lags_behind_is_noticed(wanted: str) -> None:
    assert unsatisfied("run", [wanted]) == [wanted]


@pytest.mark.parametrize("name", lock.LOCKS)
def test_each_package_of_a_lock_has_hashes_and_no_line_says_from_where(name: str) -> None:
    pins = PIN.findall(text(name))
    assert [package for package, _, rest in pins if HASHES.match(rest) is None] == []
    rest = [line for line in text(name).splitlines() if not line.startswith(("#", "    --hash=sha256:"))]
    assert len(rest) == len(pins)
    assert "://" not in text(name)


@pytest.mark.parametrize("name", [name for name, each in lock.LOCKS.items() if each.like])
def test_locks_agree_on_versions(name: str) -> None:
    """So that what is tested is what runs."""
    like = pinned(str(lock.LOCKS[name].like))
    mine = pinned(name)
    assert {each: mine[each] for each in mine.keys() & like.keys()} == {
        each: like[each] for each in mine.keys() & like.keys()
    }


def test_every_environment_of_tox_installs_from_a_lock() -> None:
    """But for the one that makes the locks."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(lock.ROOT / "tox.ini", encoding="utf-8")
    deps = {name: tox[name]["deps"] for name in tox.sections() if "deps" in tox[name] and name != "testenv:lock"}
    locks = {f"-r requirements/{name}.txt" for name in lock.LOCKS}
    assert {name: each for name, each in deps.items() if each not in locks} == {}
    assert tox["testenv"]["deps"] == "-r requirements/test.txt"


def test_there_is_no_lock_that_nothing_describes() -> None:
    assert {path.stem for path in lock.FOLDER.iterdir()} == {*lock.LOCKS}
