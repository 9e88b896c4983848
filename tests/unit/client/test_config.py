import asyncio
import dataclasses
import os
import resource
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from stockade import BlockingClient, Client, Consumer, Producer
from stockade.cli.node.authority import Authority
from stockade.client import config
from stockade.client.config import BOUNDS, DEFAULT_BOOTSTRAP, ClientConfig, InvalidConfig


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(InvalidConfig) as invalid:
        ClientConfig(bootstrap=("ftp://x", "nonsense"), linger_ms=-1, inflight_batches_max=6)
    assert [fault.split(":")[0] for fault in invalid.value.faults] == [
        "bootstrap",
        "bootstrap",
        "linger_ms",
        "inflight_batches_max",
    ]


def settings(name: str, value: int) -> dict[str, Any]:
    return {name: value}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_value_outside_its_bounds_is_refused_and_the_edge_is_not_outside(name: str) -> None:
    least, greatest = BOUNDS[name]
    for value in (least - 1, greatest + 1):
        with pytest.raises(InvalidConfig) as invalid:
            ClientConfig(**settings(name, value))
        assert invalid.value.faults == [f"{name}: {value} is not an integer from {least} to {greatest}"]
    for value in (least, greatest):
        try:
            ClientConfig(**settings(name, value))
        except InvalidConfig as relation:
            assert "is not an integer" not in str(relation)


def test_a_size_to_flush_at_that_no_batch_can_reach_is_refused() -> None:
    full = ClientConfig(flush_records=100, flush_bytes=2_048, batch_records_max=100, batch_bytes_max=2_048)
    assert (full.flush_records, full.flush_bytes) == (100, 2_048)
    with pytest.raises(InvalidConfig) as refused:
        ClientConfig(flush_records=101, flush_bytes=2_049, batch_records_max=100, batch_bytes_max=2_048)
    assert [fault.partition(":")[0] for fault in refused.value.faults] == ["flush_records", "flush_bytes"]


def test_every_number_has_bounds() -> None:
    assert {field.name for field in dataclasses.fields(ClientConfig)} == {
        *("bootstrap", "on_error", "on_busy", "compression", "token", "token_file", "ca", "certificate", "key"),
        *BOUNDS,
    }


def test_an_unknown_rule_for_errors_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="halt_partition, continue"):
        ClientConfig(on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="on_busy: 'ignore' is none of wait, fail"):
        ClientConfig(on_busy="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"delivery_timeout_ms": 30_004},
        {"buffer_bytes_max": 2048, "batch_bytes_max": 4096},
        {"retry_backoff_ms": 100, "retry_backoff_ms_max": 99},
    ],
)
def test_values_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        ClientConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"acks": 0}, "acks: 0 is not offered: every append is stored by a majority"),
        ({"acks": 1}, "acks: 1 is not offered"),
        ({"idempotent": False}, "idempotent: False is not offered: a producer is always idempotent"),
        ({"retries_max": 0}, "retries_max: 0 is not offered: a batch is repeated until delivery_timeout_ms is over"),
        ({"inflight_batches_max": 6}, "inflight_batches_max: 6 is not an integer from 1 to 5"),
        ({"delivery_timeout_ms": 30_004}, "delivery_timeout_ms: less than"),
        ({"buffer_bytes_max": 1 << 20, "batch_bytes_max": 2 << 20}, "buffer_bytes_max: less than"),
    ],
)
def test_112_settings_that_would_cost_idempotence_or_order_are_refused_with_the_reason(
    settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidConfig) as invalid:
        ClientConfig(**settings)
    (fault,) = invalid.value.faults
    assert fault.startswith(why)


def test_112_settings_that_state_the_only_behaviour_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ClientConfig(acks="all", idempotent=True)
    assert config == ClientConfig() == dataclasses.replace(config, acks=-1)


def test_a_config_is_made_of_one_url_of_several_or_of_a_config() -> None:
    one = ClientConfig.of("http://a:1/")
    assert one.bootstrap == ("http://a:1",)
    assert ClientConfig.of("http://a:1, http://b:2").bootstrap == ("http://a:1", "http://b:2")
    assert ClientConfig.of(["http://a:1", "http://b:2"]).bootstrap == ("http://a:1", "http://b:2")
    assert ClientConfig.of(one) is one


def test_no_url_at_all_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        ClientConfig(bootstrap=())


def test_the_documentation_tells_every_default_and_bound_as_it_is() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
    config = ClientConfig()
    for name, (least, greatest) in BOUNDS.items():
        assert f"\n| `{name}` | {getattr(config, name):,} | {least:,} to {greatest:,} | " in page, name
    for field in dataclasses.fields(config):
        assert f"`{field.name}`" in page, field.name


@pytest.mark.parametrize(
    "bootstrap",
    ["http://a:1,http://b:2", " http://a:1/ , http://b:2 ", ("http://a:1,http://b:2",), ["http://a:1", "http://b:2/"]],
)
def test_addresses_mean_the_same_in_one_text_and_in_several(bootstrap: Any) -> None:
    assert ClientConfig(bootstrap=bootstrap).bootstrap == ("http://a:1", "http://b:2")
    assert ClientConfig.of(bootstrap) == ClientConfig(bootstrap=bootstrap)


@pytest.mark.parametrize(
    "bootstrap",
    [
        "http://a:1 http://b:2",
        "http://a:1;http://b:2",
        "http://a:70000",
        "http://a:x",
        "http://[::1",
        "http://a?b",
        5,
        (5,),
    ],
)
def test_an_address_that_no_request_could_reach_is_refused_as_one(bootstrap: Any) -> None:
    with pytest.raises(InvalidConfig) as invalid:
        ClientConfig(bootstrap=bootstrap)
    (fault,) = invalid.value.faults
    assert fault.endswith("is not a base URL such as http://127.0.0.1:7101")


def test_without_an_address_the_environment_names_the_cluster_as_it_does_for_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("STOCKADE_URL", raising=False)
    assert Client().config.bootstrap == DEFAULT_BOOTSTRAP
    monkeypatch.setenv("STOCKADE_URL", "http://a:1,http://b:2")
    for each in (Client(), Producer().client, Consumer().client, BlockingClient()):
        assert each.config.bootstrap == ("http://a:1", "http://b:2")
    assert ClientConfig(linger_ms=0).bootstrap == ("http://a:1", "http://b:2")
    assert Client("http://c:3").config.bootstrap == ("http://c:3",)


@pytest.mark.parametrize(
    ("given", "urls"),
    [
        ("localhost:7101", ("http://localhost:7101",)),
        (
            "[::1]:7101, https://node:1/,127.0.0.1:7102/",
            ("http://[::1]:7101", "https://node:1", "http://127.0.0.1:7102"),
        ),
    ],
)
def test_an_address_without_a_scheme_is_http(
    monkeypatch: pytest.MonkeyPatch, given: str, urls: tuple[str, ...]
) -> None:
    assert ClientConfig(bootstrap=given).bootstrap == urls
    monkeypatch.setenv("STOCKADE_URL", given)
    assert ClientConfig().bootstrap == urls


def test_a_malformed_address_is_refused() -> None:
    for given in ("nonsense", "localhost:", ":7101", "a b:1"):
        with pytest.raises(InvalidConfig, match="is not a base URL"):
            ClientConfig(bootstrap=given)


def test_new_connections_use_certificates_that_were_renewed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A program had to be started again before its certificate expired: no node took a connection of it after that."""
    until = datetime.now(UTC) + timedelta(days=1)

    def renew(authority: Authority) -> None:
        for path in tmp_path.iterdir():
            path.unlink()
        authority.save(tmp_path)
        authority.issue(tmp_path, "c", "n1", ["n1"], until, ["127.0.0.1"])
        authority.issue_to_client(tmp_path, "c", "app", until)

    first, second = Authority.make("c"), Authority.make("c")
    renew(first)
    ca, certificate, key = (str(tmp_path / name) for name in ("ca.crt", "app.crt", "app.key"))
    context = ClientConfig(bootstrap="https://h:1", ca=ca, certificate=certificate, key=key).credentials().context()

    async def serials() -> list[str]:
        """The serial numbers of the client's certificate, as a node sees them in two new connections."""
        found: list[str] = []

        async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.append(writer.get_extra_info("peercert")["serialNumber"])
            writer.close()

        ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
        ours.load_cert_chain(tmp_path / "n1.crt", tmp_path / "n1.key")
        ours.verify_mode = ssl.CERT_REQUIRED
        server = await asyncio.start_server(note, "127.0.0.1", 0, ssl=ours)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert await reader.read() == b""
        writer.close()
        await asyncio.to_thread(_blocking, context, port)
        server.close()
        return found

    before = asyncio.run(serials())
    renew(first)
    after = asyncio.run(serials())
    Path(certificate).write_text("-----BEGIN", encoding="ascii")
    assert asyncio.run(serials()) == after
    assert caplog.text.count("have changed and cannot be used") == 1
    renew(second)
    last = asyncio.run(serials())
    assert [len(set(each)) for each in (before, after, last)] == [1, 1, 1]
    assert len({*before, *after, *last}) == 3


def test_a_renewed_file_that_could_not_be_read_at_first_is_read_for_the_next_connection(tmp_path: Path) -> None:
    """It was never read again: where a program had no descriptor left at that moment, its old certificate expired."""
    Authority.make("c").save(tmp_path)
    ca = tmp_path / "ca.crt"
    context = ClientConfig(bootstrap="https://h:1", ca=str(ca)).credentials().context()

    def used() -> ssl.SSLContext:
        return context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="h").context

    before = used()
    os.utime(ca, (1, 1))
    bound, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(ca, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))
    try:
        assert used() is before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (bound, most))
    assert used() is not before


def _blocking(context: ssl.SSLContext, port: int) -> None:
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        assert wrapped.recv(1) == b""


def test_a_token_is_read_again_when_its_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program had to be restarted when its token was replaced."""
    monkeypatch.setattr(config, "TOKEN_LOOK_S", 0.0)
    path = tmp_path / "token"
    path.write_text("one\n")
    credentials = ClientConfig(token="unused", token_file=str(path)).credentials()
    assert credentials.headers() == {"Authorization": "Bearer one"}
    for content in ("", "t w o", None):
        path.unlink() if content is None else path.write_text(content)
        for _ in range(2):
            assert credentials.headers() == {"Authorization": "Bearer one"}
    assert len(caplog.records) == 3
    path.write_text("two")
    assert credentials.headers() == {"Authorization": "Bearer two"}
    assert "two" not in repr(credentials)
    assert "two" not in caplog.text


def test_a_file_of_a_token_is_looked_at_once_a_second(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = ClientConfig(token_file=str(path)).credentials()
    assert credentials.token_now() == "one"
    path.write_text("two")
    assert credentials.token_now() == "one"
    credentials._kept.looked_s -= 1.0
    assert credentials.token_now() == "two"


def test_a_file_without_a_token_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    for name, why in (
        ("none", "No such file or directory"),
        ("empty", "it is empty, or has characters that no header"),
    ):
        with pytest.raises(InvalidConfig, match=f"^token_file: .*{name} cannot be used: {why}"):
            ClientConfig(token_file=str(tmp_path / name))


def test_requests_carry_the_token_that_the_file_has_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "TOKEN_LOOK_S", 0.0)
    path, sent = tmp_path / "token", []

    async def answer(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Authorization"))
        return web.json_response({"topics": []})

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/v1/topics", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        path.write_text("one")
        try:
            settings = ClientConfig(bootstrap=f"http://127.0.0.1:{runner.addresses[0][1]}", token_file=str(path))
            async with Client(settings) as client:
                await client.topics()
                path.write_text("two")
                await client.topics()
        finally:
            await runner.cleanup()

    asyncio.run(main())
    assert sent == ["Bearer one", "Bearer two"]
