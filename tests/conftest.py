"""What holds for all tests: how fast a machine is, is no property of what is tested on it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Each test has a time limit of its own (pytest-timeout); without this, a machine that is busy for a second fails tests.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


@pytest.fixture(scope="module")
def module_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what the tests of a file share. It is emptied after them, all but logs: pytest would keep it up to
    the end of the run, and a node takes 130 MB at once.
    """
    folder = tmp_path_factory.mktemp("module")
    yield folder
    for path in folder.rglob("*"):
        if path.suffix != ".log" and not path.is_dir():
            path.unlink()


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Sets the umask of this process and of those that it starts; 0, which takes nothing away, at first."""
    before = os.umask(0)
    yield os.umask
    os.umask(before)
