"""The protocol that a group runs: a deterministic state machine over raw bytes."""

from typing import Protocol


class Machine(Protocol):
    """A replicated state machine.

    Its group calls ``apply`` on the node's event loop, once for each committed command, in log order, on every replica.
    After a restart the whole log is applied again to a fresh machine. The result of a call goes to whoever proposed the
    command on this node; elsewhere it is thrown away.
    """

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply the command at ``index``. Deterministic: no clock, no randomness, no IO that can answer differently.

        A refused command returns its refusal. An exception is a bug that every replica would share: it stops the node.
        """
        ...
