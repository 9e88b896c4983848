"""Certificates that are read again: what is logged, and that one section's fault does not touch another."""

import asyncio
import logging

import pytest

from stockade.cli.node import reload
from stockade.cli.node.reload import Reloader
from stockade.raft.net.tls import TlsFault


class Files:
    """Files that may change, and may be bad."""

    def __init__(self) -> None:
        self.changed = False
        self.fault: str | None = None
        self.reloads = 0
        self.seen = asyncio.Event()

    def has_changed(self) -> bool:
        return self.changed

    def reload(self) -> None:
        self.reloads += 1
        self.changed = False
        self.seen.set()
        if self.fault is not None:
            raise TlsFault(self.fault)


def test_only_the_files_that_changed_are_read_and_a_bad_one_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    http, raft = Files(), Files()
    reloader = Reloader({"http_tls": http, "raft.tls": raft})
    http.changed, http.fault = True, "certificate: has expired"
    with caplog.at_level(logging.INFO, "stockade"):
        reloader.look()
        reloader.look()
    assert (http.reloads, raft.reloads) == (1, 0)
    (line,) = caplog.messages
    assert "[http_tls]" in line
    assert "has expired" in line


def test_sighup_reads_all_of_them_though_one_is_bad() -> None:
    http, raft = Files(), Files()
    http.fault = "bad"
    Reloader({"http_tls": http, "raft.tls": raft}).reload()
    assert (http.reloads, raft.reloads) == (1, 1)


def test_a_change_is_seen_without_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "RELOAD_CHECK_S", 0.01)

    async def main() -> None:
        files = Files()
        files.changed = True
        watching = asyncio.ensure_future(Reloader({"http_tls": files}).watch())
        async with asyncio.timeout(60):
            await files.seen.wait()
        watching.cancel()

    asyncio.run(main())
