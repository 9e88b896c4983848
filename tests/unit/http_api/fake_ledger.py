"""The part of the fake cluster that is about its ledger."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from stockade.cluster.features import LEDGER
from stockade.cluster.model import By
from stockade.partition.errors import StockadeError


class FakeLedger:
    """Keeps what was intended, who asked, and what came of it in ``acts``, which belong to the cluster."""

    def __init__(self, acts: list[tuple[Any, ...]]) -> None:
        self._acts = acts
        self.level = LEDGER

    @asynccontextmanager
    async def act(
        self, act: str, topic: str | None, partition: int | None, wanted: dict[str, Any], by: By
    ) -> AsyncIterator[dict[str, Any]]:
        result: dict[str, Any] = {}
        outcome = "unknown"
        try:
            yield result
            outcome = "done"
        except StockadeError as refusal:
            outcome = refusal.code
            raise
        finally:
            self._acts.append((act, topic, partition, wanted, by.principal, bool(by.request), outcome, result))
