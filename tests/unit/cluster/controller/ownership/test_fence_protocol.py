"""The fence protocol, played (protocol.py)."""

from hypothesis import settings

from ...protocol import OperatedProtocol, Protocol

TestFenceProtocol = OperatedProtocol.TestCase
TestFenceProtocol.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


def test_sessions_that_expire_in_two_rounds_are_all_of_one_age() -> None:
    played = Protocol()
    played.expire_the_others("b")
    played.acquire(session="a", name="p", wanted=None, mode="Shared", resume=None)
    played.acquire(session="b", name="p", wanted=None, mode="WaitForExclusive", resume=None)
    played.expire_the_others("a")
    played.the_controller_is_what_the_reference_says()
    played.teardown()
