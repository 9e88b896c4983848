"""The client for code without an event loop: the names of ``stockade``, blocking."""

from .client.synchronous import Delivery, Fence, Ownership, Producer, Session
from .client.synchronous_reading import Consumer, GroupReading, Reading

__all__ = ["Consumer", "Delivery", "Fence", "GroupReading", "Ownership", "Producer", "Reading", "Session"]
