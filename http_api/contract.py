"""Makes ``assets/openapi.json`` of the normative contract: ``python -m stockade.http_api.contract
path/to/openapi.yaml``.

The contract describes every version to come. The document that a node serves has the routes of this version,
without the parameters that this version refuses, and of the components only those that are still referred to.
Needs PyYAML, which a node does not.
"""

import json
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..partition.errors import BY_CODE
from .pages import ASSETS
from .routes import UNDOCUMENTED, routes

_LATER_PARAMETERS = {"OwnEpoch", "ReadGroup"}
"""Ownership guards of reads and writes."""

_THIS_VERSION = """

**This version** has no own-API, no Shared and WaitForExclusive grants and no trimming; routes that serve
them are absent. It refuses, with INVALID_REQUEST, what it cannot honour: those modes, `durability: replicated`,
a `writer_group`, a `dedupe_window_ms` (and so every Stockade-Message-Id) and retention."""

_COMPONENT = re.compile(r"^#/components/(\w+)/(.+)$")


def reduce(contract: dict[str, Any], operations: Collection[tuple[str, str]]) -> dict[str, Any]:
    """The contract with these (method, path) alone, and the components that they need. ``contract`` is left
    as it was.
    """
    paths = {
        path: kept
        for path, methods in contract["paths"].items()
        if (kept := {m: _operation(op) for m, op in methods.items() if (m.upper(), path) in operations})
    }
    info = contract["info"] | {"description": contract["info"]["description"] + _THIS_VERSION}
    document = contract | {"info": info, "paths": paths}
    roots: list[dict[str, Any]] = [paths, {"any route": _problems(contract["components"]["schemas"])}]
    return document | {"components": _needed(contract["components"], roots)}


def _operation(operation: dict[str, Any]) -> dict[str, Any]:
    if "parameters" not in operation:
        return operation
    later = {f"#/components/parameters/{name}" for name in _LATER_PARAMETERS}
    return operation | {"parameters": [p for p in operation["parameters"] if p.get("$ref") not in later]}


def _problems(schemas: dict[str, Any]) -> list[dict[str, str]]:
    """References to the problems that this version can answer, also where no operation names them."""
    return [
        {"$ref": f"#/components/schemas/{name}"}
        for name, schema in schemas.items()
        if any(example.get("code") in BY_CODE for example in schema.get("examples", ()))
    ]


def _needed(components: dict[str, dict[str, Any]], roots: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The components that are referred to, directly or by another; how to authenticate is referred to by
    name.
    """
    needed: set[tuple[str, str]] = set()
    waiting = [*roots]
    while waiting:
        for kind, name in _references(waiting.pop()) - needed:
            needed.add((kind, name))
            waiting.append(components[kind][name])
    return {
        kind: named if kind == "securitySchemes" else {name: c for name, c in named.items() if (kind, name) in needed}
        for kind, named in components.items()
    }


def _references(value: Any) -> set[tuple[str, str]]:
    if isinstance(value, list):
        return set().union(*map(_references, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(_references, value.values()))
    match = _COMPONENT.match(value["$ref"]) if isinstance(value.get("$ref"), str) else None
    return found | ({(match[1], match[2])} if match else set())


def main(source: str) -> None:
    """Write the served document."""
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415

    contract = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
    operations = {(route.method, route.path) for route in routes() if route.path not in UNDOCUMENTED}
    document = reduce(contract, operations)
    text = json.dumps(document, ensure_ascii=False, indent=1)
    (ASSETS / "openapi.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
