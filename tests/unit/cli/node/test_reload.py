"""Certificates that are read again: what is logged, and that one section's fault does not touch another."""

import asyncio
import logging

import pytest

from stockade.cli.node import reload
from stockade.cli.node.reload import Principals, Reloader
from stockade.cluster.access.principals import Access, Principal, PrincipalToken, new_token
from stockade.cluster.config import ConfigError, NodeConfig
from stockade.partition.errors import Unauthenticated
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


def test_refused_files_that_have_become_good_as_they_are_are_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate that was not valid yet by the node's clock stayed refused until its file was touched."""
    monkeypatch.setattr(reload, "REFUSED_CHECK_S", 0.0)
    http = Files()
    http.changed, http.fault = True, "not yet valid"
    reloader = Reloader({"http_tls": http})
    with caplog.at_level(logging.INFO, "stockade"):
        for _ in range(3):
            reloader.look()
        http.fault = "no PEM"
        reloader.look()
        http.changed = True
        reloader.look()
        http.fault = None
        for _ in range(3):
            reloader.look()
    assert http.reloads == 6
    taken = "new connections and requests use the files as they are now"
    said = [line.rpartition(": ")[2] for line in caplog.messages]
    assert said == ["not yet valid", "no PEM", "no PEM", taken], "each reason once, and again for changed files"


def test_a_configuration_that_was_refused_is_not_read_before_the_next_sighup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "REFUSED_CHECK_S", 0.0)
    reads: list[None] = []

    def bad() -> NodeConfig:
        reads.append(None)
        raise ConfigError(["half-written"])

    reloader = Reloader({"principals": Principals(Access([], []), bad)})
    reloader.reload()
    reloader.look()
    assert len(reads) == 1


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


def config(*principals: Principal) -> NodeConfig:
    return NodeConfig("n1", "c", "data", "127.0.0.1:1", "127.0.0.1:2", [], principals=list(principals))


def test_sighup_takes_the_principals_of_the_configuration_and_those_of_the_cluster_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, new, told = (new_token() for _ in range(3))
    before = Principal("orders", ["read topic:orders"], tokens=[PrincipalToken(old.hash)])
    after = Principal("orders", ["read topic:*"], tokens=[PrincipalToken(new.hash)])
    access = Access([], [before])
    access.replicate(1, [Principal("billing", ["all"], tokens=[PrincipalToken(told.hash)]), Principal("late", ["all"])])
    said = [config(after, Principal("late", []))]
    with caplog.at_level(logging.INFO, "stockade"):
        Reloader({"principals": Principals(access, lambda: said[-1])}).reload()
    assert "[principals]" in caplog.text
    assert access.caller(f"Bearer {new.token}", None).principal == "orders"
    assert access.caller(f"Bearer {told.token}", None).principal == "billing"
    with pytest.raises(Unauthenticated):
        access.caller(f"Bearer {old.token}", None)
    said.append(config(after))
    Principals(access, lambda: said[-1]).reload()
    assert access.caller(f"Bearer {told.token}", None).principal == "billing"
    assert access.configured.keys() == {"orders"}


def test_a_configuration_with_faults_or_without_principals_changes_nothing() -> None:
    token = new_token()
    access = Access([], [Principal("orders", ["all"], tokens=[PrincipalToken(token.hash)])])

    def bad() -> NodeConfig:
        raise ConfigError(["principals[0].rights: no verb"])

    Reloader({"principals": Principals(access, bad)}).reload()
    Reloader({"principals": Principals(access, config)}).reload()
    assert not access.is_open
    assert access.caller(f"Bearer {token.token}", None).principal == "orders"
