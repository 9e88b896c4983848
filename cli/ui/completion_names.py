"""Shell completion of arguments that are names of topics, groups, producers or nodes of a running cluster.

The completion sends one short request, without a token, to at most COMPLETION_NODES_MAX nodes of --url or STOCKADE_URL.
If none answers, it completes nothing and prints nothing.
"""

import os
from collections.abc import Iterable

import click
import msgspec
from click.shell_completion import CompletionItem

from ...client.blocking.http import PlainHttp
from ...client.config import DEFAULT_BOOTSTRAP, Credentials, base_urls
from ...partition.errors import StockadeError

COMPLETION_TIMEOUT_S = 0.5
COMPLETION_NODES_MAX = 2
_FIELDS = {"topics": "name", "groups": "group", "producers": "name"}


class Known(click.ParamType[str]):
    """The type of an argument that is a name of this ``kind``: topics, groups, producers or nodes."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        url = ctx.params.get("url") or os.environ.get("STOCKADE_URL") or ",".join(DEFAULT_BOOTSTRAP)
        return [CompletionItem(name) for name in fetch_names(url, self._kind) if name.startswith(incomplete)]


def fetch_names(url: str, kind: str) -> list[str]:
    """The names of one kind, from the first node that answers; none if no node does."""
    http = PlainHttp(Credentials(), COMPLETION_TIMEOUT_S, COMPLETION_TIMEOUT_S)
    try:
        for node in base_urls(url)[:COMPLETION_NODES_MAX]:
            try:
                return sorted(_request_names(http, node, kind))
            except (StockadeError, OSError, ValueError, KeyError, msgspec.MsgspecError):
                continue
    finally:
        http.close()
    return []


def _request_names(http: PlainHttp, node: str, kind: str) -> Iterable[str]:
    path = "/v1/cluster" if kind == "nodes" else f"/v1/{kind}"
    answer = msgspec.json.decode(http.request(node, "GET", path).body, type=dict[str, object])
    found = answer[kind]
    assert isinstance(found, list)
    return [each["node_id" if kind == "nodes" else _FIELDS[kind]] for each in found]


TOPIC, GROUP, PRODUCER, NODE = Known("topics"), Known("groups"), Known("producers"), Known("nodes")
