"""The fence protocol, played (protocol.py)."""

from hypothesis import settings

from ...protocol import Protocol

TestFenceProtocol = Protocol.TestCase
TestFenceProtocol.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
