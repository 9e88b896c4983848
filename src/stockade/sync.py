"""The client for code without an event loop: the names of ``stockade``, blocking."""

from .client.blocking.client import Client
from .client.blocking.facade import Consumer, Delivery, Fence, GroupReading, Ownership, Producer, Reading, Session

__all__ = ["Client", "Consumer", "Delivery", "Fence", "GroupReading", "Ownership", "Producer", "Reading", "Session"]
