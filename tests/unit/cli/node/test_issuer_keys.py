"""Keys of an issuer that are at a URL: asked again and again, never followed elsewhere, never forgotten."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from stockade.cli.node import issuer_keys
from stockade.cluster.access.issuers import KEYS_BYTES_MAX, Issuer, Issuers


def key_set(kid: str) -> bytes:
    public = ed25519.Ed25519PrivateKey.generate().public_key()
    return json.dumps({"keys": [jwt.algorithms.OKPAlgorithm.to_jwk(public, as_dict=True) | {"kid": kid}]}).encode()


@contextmanager
def provider(answers: list[tuple[int, bytes]]) -> Iterator[str]:
    """Answers one after the other, the last for good."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", body.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/jwks"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Watched(Issuers):
    """Tells which sets of keys it took."""

    def __init__(self, issuer: Issuer) -> None:
        super().__init__([issuer])
        self.kids: list[str | None] = []
        self.came = asyncio.Event()

    def take(self, name: str, text: bytes) -> None:
        super().take(name, text)
        self.kids += self._keys[name]
        self.came.set()


async def taken(url: str, wanted: str) -> list[str | None]:
    issuer = Issuer("corp", "https://idp.example.com", "stockade", keys_url=url, refresh_s=0)
    issuers = Watched(issuer)
    following = asyncio.create_task(issuer_keys.follow(issuers, issuer))
    while wanted not in issuers.kids:
        await asyncio.wait_for(issuers.came.wait(), 30)
        issuers.came.clear()
    following.cancel()
    return issuers.kids


def test_keys_are_asked_for_until_they_come_and_then_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(issuer_keys, "AGAIN_S", 0)
    evil = key_set("evil")
    with provider([(200, evil)]) as elsewhere:
        refused = [(500, b""), (302, elsewhere.encode()), (200, b"{}"), (200, b" " * (KEYS_BYTES_MAX + 1))]
        with (
            provider([*refused, (200, key_set("first")), (503, b""), (200, key_set("second"))]) as url,
            caplog.at_level(logging.INFO),
        ):
            kids = asyncio.run(taken(url, "second"))
    assert kids[:2] == ["first", "second"], "and no redirection is followed"
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 2, "a failure that goes on is one warning"
    assert "none of its tokens is taken" in lines[0]
    assert "the keys before stay" in lines[1]
