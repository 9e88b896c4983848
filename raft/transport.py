"""Connections between the nodes of a cluster: one TCP connection for each pair of nodes, shared by all groups."""

from collections.abc import Awaitable, Callable, Mapping

from .frames import RaftMessage

Address = tuple[str, int]


class CallUnknown(TimeoutError):
    """The call was sent and no answer came: deadline or lost connection. The other node may have acted on it or not."""


class CallFailed(Exception):
    """The other node answered that its handler failed; the text is the handler's."""


class Transport:
    """This node's end of every connection between nodes.

    The node with the larger id dials; a lost connection is dialled again every ``reconnect_s``. ``peers`` may list this node
    too; its addresses are looked up at each dial. Nothing is sent twice: a frame is lost with its connection.
    Raises ValueError for a ``listen`` address that is not loopback unless ``plaintext`` allows it.

    - ``keepalive_s``: period of pings; ``silence_s``: a peer not heard for so long (checked at each ping) is dropped.
    - ``peer_buffer_bytes_max``: bytes that wait for one peer; frames beyond it are dropped.
    - ``calls_max``: unanswered calls to one peer, and calls of one peer served at a time.
    """

    connected: set[str]
    """Ids of the nodes that frames can be sent to now. Read only."""
    on_frame: Callable[[str, int, RaftMessage], None]
    """Called with (node id, group id, message)."""
    on_up: Callable[[str], None]
    """Called with a node id when it is connected. For each peer, on_up and on_down alternate, on_up first."""
    on_down: Callable[[str], None]
    on_call: Callable[[str, bytes], Awaitable[bytes]]
    """Answers the calls of other nodes: (node id, payload) to answer. Its exception becomes the caller's CallFailed."""

    def __init__(  # noqa: PLR0913
        self,
        node_id: str,
        cluster_id: str,
        listen: Address,
        peers: Mapping[str, Address],
        *,
        plaintext: bool = False,
        keepalive_s: float = 1.0,
        silence_s: float = 3.0,
        reconnect_s: float = 0.2,
        peer_buffer_bytes_max: int = 64 << 20,
        calls_max: int = 1024,
    ) -> None:
        raise NotImplementedError

    @property
    def address(self) -> Address:
        """Where this node listens, once started (the real port if ``listen`` asked for port 0)."""
        raise NotImplementedError

    async def start(self) -> None:
        """Listen and dial. Returns when listening, not when peers are connected. Raises OSError if the port is taken."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Close everything; on_down is called for every connected peer. Unanswered calls end as CallUnknown."""
        raise NotImplementedError

    def send(self, node_id: str, frame: bytes) -> bool:
        """Queue a frame (of ``frames.encode``). False if the node is not connected or too much waits for it already."""
        raise NotImplementedError

    async def call(self, node_id: str, payload: bytes, timeout_s: float) -> bytes:
        """Ask another node's ``on_call``.

        Raises ConnectionError if the call was surely not sent (not connected, or too many calls or bytes in flight),
        CallUnknown (a TimeoutError) if it was sent and no answer came, CallFailed if the handler failed.
        """
        raise NotImplementedError
