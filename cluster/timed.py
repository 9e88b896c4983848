"""What every command of the controller carries."""

import msgspec


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """``now_ms``: the leader's lease clock, in milliseconds."""

    now_ms: int
