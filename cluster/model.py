"""Arguments and results of a node's service, beside the API's values (partition/api): the conditions of an append, a
reader's guard, claims, the caller, and the leader of a group.
"""

from collections.abc import Callable

import msgspec

from ..partition.api.cluster import LeaderInfo
from ..partition.commands import Appended, Stamp, Token
from ..partition.errors import StockadeError


class Leader(msgspec.Struct, frozen=True):
    """The leader of a group, as far as this node knows: node id, base URL, term. None, None and 0 while unknown."""

    node_id: str | None
    url: str | None
    term: int

    @property
    def info(self) -> LeaderInfo:
        """The leader, as the API describes it."""
        return LeaderInfo(self.url, self.node_id, self.term)


class Conditions(msgspec.Struct, frozen=True, gc=False):
    """The conditions of an append, and the identity of its producer (SEMANTICS 5.8); ``principal`` is the caller's
    ("": none).
    """

    topic_id: int | None = None
    token: Token | None = None
    stamp: Stamp | None = None
    if_log_end: int | None = None
    message_id: str | None = None
    fence_epoch: int | None = None
    principal: str = ""


Settle = Callable[[Appended | StockadeError | None], None]
"""Called with the answer of an append, or its refusal. None: nothing was stored, and the caller of ``submit`` goes on
with ``append``.
"""


class ReadGuard(msgspec.Struct, frozen=True):
    """A read under ownership: the reader owns the partition in ``group`` with this fence_epoch, or gets NotOwner.
    ``principal`` is the caller's ("": none).
    """

    group: str
    fence_epoch: int
    principal: str = ""


class CommittedPosition(msgspec.Struct, frozen=True):
    """A group's committed position on a partition; None: none was committed."""

    offset: int | None
    metadata: str | None


class By(msgspec.Struct, frozen=True, omit_defaults=True):
    """The caller of a request: its principal ("": none), and whether it has the right to take over (``evict``) what the
    request names and another principal has. ``most``: how many of what the command makes the principal may have (None:
    no bound). ``request`` is the id of the request, ``client`` the address that it came from: both are for the ledger,
    and decide nothing. Without principal and request, the cluster itself asks.
    """

    principal: str = ""
    evicts: bool = False
    most: int | None = None
    request: str = ""
    client: str = ""


NO_PRINCIPAL = By()


class Claim(msgspec.Struct, frozen=True):
    """One resource that a session wants to own.

    ``generation`` None: only a free resource, or a renewal; 0: take over from any owner, and reset.
    """

    resource: str
    generation: int | None = None
