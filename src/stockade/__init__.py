"""Stockade: a replicated, partitioned log in which one writer at a time is a promise the server keeps.

The public names of the client. They are imported when first used, so that a command or a Spark worker loads only what
it needs; nothing of the server is ever imported from here.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .partition.version import VERSION

if TYPE_CHECKING:
    from .client.admin import Client as Client
    from .client.batches import Receipt as Receipt
    from .client.batches import Record as Record
    from .client.blocking import BlockingClient as BlockingClient
    from .client.config import ClientConfig as ClientConfig
    from .client.config import InvalidConfig as InvalidConfig
    from .client.consumer import Consumer as Consumer
    from .client.delivery import Delivery as Delivery
    from .client.fencing import Fence as Fence
    from .client.fencing import Session as Session
    from .client.outcomes import Failure as Failure
    from .client.owning import Ownership as Ownership
    from .client.pieces import ConsumedRecord as ConsumedRecord
    from .client.pieces import Piece as Piece
    from .client.producer import Producer as Producer
    from .client.reading import Reading as Reading
    from .partition.errors import StockadeError as StockadeError

__version__ = VERSION

_HOMES = {
    "BlockingClient": "client.blocking",
    "Client": "client.admin",
    "ClientConfig": "client.config",
    "ConsumedRecord": "client.pieces",
    "Consumer": "client.consumer",
    "Delivery": "client.delivery",
    "Failure": "client.outcomes",
    "Fence": "client.fencing",
    "InvalidConfig": "client.config",
    "Ownership": "client.owning",
    "Piece": "client.pieces",
    "Producer": "client.producer",
    "Reading": "client.reading",
    "Receipt": "client.batches",
    "Record": "client.batches",
    "Session": "client.fencing",
    "StockadeError": "partition.errors",
}

__all__ = [
    "BlockingClient",
    "Client",
    "ClientConfig",
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
