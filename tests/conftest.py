"""What holds for all tests: how fast a machine is, is no property of what is tested on it."""

import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

# Each test has a time limit of its own (pytest-timeout); without this, a machine that is busy for a second fails tests.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Sets the umask of this process and of those that it starts; 0, which takes nothing away, at first."""
    before = os.umask(0)
    yield os.umask
    os.umask(before)
