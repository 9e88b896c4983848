"""The client for code without an event loop: the names of ``stockade``, blocking."""

from .client.synchronous import Consumer, Delivery, Fence, Producer, Session

__all__ = ["Consumer", "Delivery", "Fence", "Producer", "Session"]
