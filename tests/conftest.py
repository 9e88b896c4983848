"""What holds for all tests: how fast a machine is, is no property of what is tested on it."""

from hypothesis import HealthCheck, settings

# Each test has a time limit of its own (pytest-timeout); without this, a machine that is busy for a second fails tests.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
