"""The objects that all handlers of one application share: the node's front, connections to other nodes, metrics."""

from dataclasses import dataclass, field

from ...cluster.front.front import Front
from ..reading.reader import BodyReader
from .boundary import Boundary
from .connections import Descriptors
from .metrics import Metrics
from .peers import Peers
from .pulse import Pulse
from .stalls import Stalls


@dataclass
class Context:
    """The shared objects of one application. None is global, because a process may hold several applications."""

    front: Front
    peers: Peers
    metrics: Metrics
    reader: BodyReader
    stalls: Stalls
    boundary: Boundary
    pulse: Pulse
    descriptors: Descriptors = field(default_factory=Descriptors)
