"""What every command to the controller carries, and the plainest answer. See commands.py."""

import msgspec

from ..model import NO_PRINCIPAL, By


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """``now_ms``: the leader's lease clock, in milliseconds. ``wall_ms``: its wall clock, in milliseconds since 1970;
    0: not stamped. Nothing is decided by the wall clock: people are told since when a grant holds.
    """

    now_ms: int
    wall_ms: int = 0


class Asked(Timed, frozen=True, kw_only=True):
    """A command of a client. ``by``: who asks. The answer is PermissionDenied to a command that would use what another
    principal has, or take it over without the right.
    """

    by: By = NO_PRINCIPAL


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Noted."""
