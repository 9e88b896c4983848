"""Stockade: a replicated, partitioned log whose server enforces that a partition has one writer at a time.

This module has the main public names of the client; `stockade.model`, `stockade.errors`, `stockade.sync`,
`stockade.otel` and `stockade.testing` have the others. Each name is imported at its first use, so a command or a Spark
worker loads only what it needs. Only `stockade.testing` imports the server.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .partition.version import VERSION

if TYPE_CHECKING:
    from .client.api.client import Client
    from .client.api.conditions import Conditions
    from .client.blocking.reader import BlockingClient
    from .client.config import ClientConfig, InvalidConfig
    from .client.consumer.consumer import Consumer
    from .client.consumer.reader import Reading
    from .client.consumer.records import ConsumedRecord, Piece
    from .client.producer.delivery import Delivery
    from .client.producer.producer import Producer
    from .client.producer.queue.batch import Receipt, Record
    from .client.producer.results import Failure
    from .client.session.held import Ownership
    from .client.session.session import Fence, Session
    from .partition.errors import StockadeError

__version__ = VERSION

_HOMES = {
    "BlockingClient": "client.blocking.reader",
    "Client": "client.api.client",
    "ClientConfig": "client.config",
    "Conditions": "client.api.conditions",
    "ConsumedRecord": "client.consumer.records",
    "Consumer": "client.consumer.consumer",
    "Delivery": "client.producer.delivery",
    "Failure": "client.producer.results",
    "Fence": "client.session.session",
    "InvalidConfig": "client.config",
    "Ownership": "client.session.held",
    "Piece": "client.consumer.records",
    "Producer": "client.producer.producer",
    "Reading": "client.consumer.reader",
    "Receipt": "client.producer.queue.batch",
    "Record": "client.producer.queue.batch",
    "Session": "client.session.session",
    "StockadeError": "partition.errors",
}

__all__ = [
    "BlockingClient",
    "Client",
    "ClientConfig",
    "Conditions",
    "ConsumedRecord",
    "Consumer",
    "Delivery",
    "Failure",
    "Fence",
    "InvalidConfig",
    "Ownership",
    "Piece",
    "Producer",
    "Reading",
    "Receipt",
    "Record",
    "Session",
    "StockadeError",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
