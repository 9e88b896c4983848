"""What all handlers of one application share: the node's front, its connections to other nodes, its metrics."""

from dataclasses import dataclass

from ...cluster.front.front import Front
from ..reading.reader import BodyReader
from .boundary import Boundary
from .metrics import Metrics
from .peers import Peers
from .pulse import Pulse
from .stalls import Stalls


@dataclass
class Context:
    """Nothing here is global: a process may hold several applications, each with its own."""

    front: Front
    peers: Peers
    metrics: Metrics
    reader: BodyReader
    stalls: Stalls
    boundary: Boundary
    pulse: Pulse
