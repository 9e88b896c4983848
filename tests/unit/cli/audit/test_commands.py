"""How `stockade audit ledger` asks for one page after the other."""

import asyncio
from typing import Any, cast

from stockade.cli.audit.commands import _pages
from stockade.client.api.client import Client
from stockade.partition.api.ledger import LedgerPage


class Ended:
    """A client of a ledger whose next entry is number 7."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def ledger(self, first: int, most: int, **_: Any) -> LedgerPage:
        self.asked.append(first)
        return LedgerPage(1, 7, min(first, 7), [])


def test_a_ledger_that_is_followed_from_a_later_entry_shows_none_before_it() -> None:
    async def main() -> None:
        client, seen = Ended(), 0
        async for _ in _pages(cast(Client, client), 9, {}, follow=True):
            seen += 1
            if seen == 2:
                break
        assert client.asked == [9, 9]

    asyncio.run(main())
