"""What the controller can ask of a partition's slot.

The grants and seats of a partition are ordered by (epoch, grant_index). ``grant_index`` is the index in the
controller's log of the command that decided, so a grant that resumes an epoch comes after the one it resumes. Commands
that come later than they should are recognised by this order and change nothing. ``now_ms`` is the controller's lease
clock at the decision; it is told to people, and decides nothing.
"""

import msgspec


class InstallFence(msgspec.Struct, frozen=True, tag="install_fence"):
    """Put an exclusive grant into the slot, in place of whoever is there; topic_epoch becomes ``epoch``.

    Accepted if the grant is later than everything that was installed or cleared here, or if it holds the slot already;
    nothing changes otherwise. ``operation`` says how it got the slot (acquire, resume, promotion, eviction), and
    ``ends`` why the holder before it ended, if that one is still here.
    """

    grant_id: str
    epoch: int
    session: str
    producer_name: str
    mode: str
    grant_index: int
    client_id: str | None = None
    now_ms: int = 0
    operation: str = "acquire"
    ends: str = "superseded"


class Seat(msgspec.Struct, frozen=True):
    """One of several producers that share the slot; ``now_ms`` is when it got the seat."""

    grant_id: str
    session: str
    producer_name: str
    client_id: str | None = None
    now_ms: int = 0


class InstallSeats(msgspec.Struct, frozen=True, tag="install_seats"):
    """These and nobody else share the slot now (none: it is free); ``epoch`` is not raised by that.

    ``grant_index`` is that of the latest change of the set: a seat taken or left. Accepted if it is later than
    everything that was installed or cleared here, or the same again. ``ends`` says why those ended who are here and not
    in the set.
    """

    epoch: int
    grant_index: int
    seats: list[Seat]
    now_ms: int = 0
    ends: str = "released"


class ClearFence(msgspec.Struct, frozen=True, tag="clear_fence"):
    """End a grant, and with it every older one: the slot is emptied unless a later grant holds it.

    Late installs of what was ended are refused from now on, also when this grant never arrived here: the place in the
    order of grants, and with it topic_epoch, rises to this grant's if it is lower. A later grant is left alone. To
    evict whoever is here and seat nobody, clear a grant that was never given out. ``ends`` says why it ended
    (released, closed, expired, evicted, fenced).
    """

    grant_id: str
    epoch: int
    grant_index: int
    now_ms: int = 0
    ends: str = "released"


class SlotState(msgspec.Struct, frozen=True, tag="slot"):
    """Answer to the three: whether the slot is now as asked, and the partition's epoch."""

    done: bool
    topic_epoch: int
