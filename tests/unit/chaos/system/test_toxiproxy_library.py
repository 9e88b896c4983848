import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from toxiproxy import server as server_module
from toxiproxy.api import APIConsumer

from stockade.chaos.system import toxiproxy_library
from stockade.chaos.system.toxiproxy_library import Proxy, Refused, Toxiproxy, calls_to

UP = Proxy(name="up", upstream="127.0.0.1:2", enabled=True, listen="127.0.0.1:1")
ORDERS: dict[str, Callable[[], object]] = {
    "disable": UP.disable,
    "enable": UP.enable,
    "add_toxic": lambda: UP.add_toxic(name="slow", type="latency", stream="upstream"),
    "destroy_toxic": lambda: UP.destroy_toxic("slow"),
    "create": lambda: Toxiproxy().create("127.0.0.1:2", "up"),
}


class Controls:
    """A control port that answers everything with one status and body, and remembers what it was asked."""

    def __init__(self, status: int, body: object) -> None:
        self.asked: list[str] = []
        controls = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                controls.asked.append(f"{self.command} {self.path}")
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_DELETE = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def controls() -> Iterator[Callable[[int, object], Controls]]:
    with ExitStack() as stack:

        def start(status: int, body: object) -> Controls:
            made = Controls(status, body)
            stack.callback(made.close)
            return made

        yield start


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("status", [400, 404, 409, 500, 503])
def test_an_order_that_the_server_did_not_carry_out_is_refused(
    controls: Callable[[int, object], Controls], order: str, status: int
) -> None:
    """The library itself takes 500 and 503 for success."""
    broken = controls(status, {"error": "address in use", "status": status})
    with pytest.raises(Refused, match="address in use"), calls_to(broken.port):
        ORDERS[order]()


def test_each_call_goes_to_the_server_it_is_for(controls: Callable[[int, object], Controls]) -> None:
    one, two = controls(200, {}), controls(200, {})
    for server in (one, two, one):
        with calls_to(server.port):
            UP.disable()
    assert one.asked == ["POST /proxies/up"] * 2
    assert two.asked == ["POST /proxies/up"]


def test_afterwards_the_library_is_as_it_was(controls: Callable[[int, object], Controls]) -> None:
    with pytest.raises(Refused), calls_to(controls(500, {}).port):
        UP.disable()
    assert server_module.APIConsumer is APIConsumer


def test_a_server_that_does_not_answer_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toxiproxy_library, "CALL_TIMEOUT_S", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(Refused, match="timed out"),
        calls_to(silent.getsockname()[1]),
    ):
        UP.disable()


def test_a_server_that_is_gone_is_refused() -> None:
    with pytest.raises(Refused), calls_to(1):
        UP.disable()
