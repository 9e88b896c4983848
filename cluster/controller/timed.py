"""The fields that every command to the controller carries, and the answer without content. See commands.py."""

import msgspec

from ..model import NO_PRINCIPAL, By


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """A command. ``now_ms``: the leader's lease clock, in milliseconds. ``wall_ms``: its wall clock, in milliseconds
    since 1970; 0: not stamped. The wall clock decides nothing: it dates grants and the ledger's entries for people.
    """

    now_ms: int
    wall_ms: int = 0


class Asked(Timed, frozen=True, kw_only=True):
    """A command of the client ``by``. The answer is PermissionDenied when the command would use what belongs to another
    principal, or take it over without the right to evict.
    """

    by: By = NO_PRINCIPAL


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The command was applied; the answer has no content."""
