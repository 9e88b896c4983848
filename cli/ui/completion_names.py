"""Arguments that complete themselves: names of topics, nodes and groups, asked of a running cluster.

Quick and safe: one short request to each of a few nodes at most, and silence when something is wrong. Nothing is sent
with a token or to anything but what --url, or STOCKADE_URL, names.
"""

import os
from collections.abc import Iterable

import click
import msgspec
from click.shell_completion import CompletionItem

from ..client.access import Access
from ..client.config import DEFAULT_BOOTSTRAP
from ..client.plain_http import PlainHttp
from ..partition.errors import StockadeError

COMPLETION_TIMEOUT_S = 0.5
COMPLETION_NODES_MAX = 2
_FIELDS = {"topics": "name", "groups": "group", "producers": "name"}


class Known(click.ParamType[str]):
    """A name of one of the lists that the cluster gives: ``topics``, ``groups``, ``producers``, or ``nodes``."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Any text: the cluster knows better."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names that begin so."""
        url = ctx.params.get("url") or os.environ.get("STOCKADE_URL") or ",".join(DEFAULT_BOOTSTRAP)
        return [CompletionItem(name) for name in asked(url, self._kind) if name.startswith(incomplete)]


def asked(url: str, kind: str) -> list[str]:
    """The names that the first node tells which answers; none when none does."""
    http = PlainHttp(Access(), COMPLETION_TIMEOUT_S)
    try:
        for node in url.split(",")[:COMPLETION_NODES_MAX]:
            try:
                return sorted(_names(http, node.strip().rstrip("/"), kind))
            except (StockadeError, OSError, ValueError, KeyError, msgspec.MsgspecError):
                continue
    finally:
        http.close()
    return []


def _names(http: PlainHttp, node: str, kind: str) -> Iterable[str]:
    path = "/v1/cluster" if kind == "nodes" else f"/v1/{kind}"
    answer = msgspec.json.decode(http.request(node, "GET", path).body, type=dict[str, object])
    found = answer[kind]
    assert isinstance(found, list)
    return [each["node_id" if kind == "nodes" else _FIELDS[kind]] for each in found]


TOPIC, GROUP, PRODUCER, NODE = Known("topics"), Known("groups"), Known("producers"), Known("nodes")
