"""The fence protocol, played (protocol.py)."""

from hypothesis import settings

from .protocol import Protocol

TestFenceProtocol = Protocol.TestCase
TestFenceProtocol.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
