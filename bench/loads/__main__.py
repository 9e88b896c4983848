"""One load, in a process of its own: ``python bench/loads NAME ARGUMENTS`` (JSON) prints its `figures.Load` as JSON."""

# ruff: noqa: T201  # it answers on stdout

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop

sys.path.append(str(Path(__file__).resolve().parents[1]))

from loads import clients, over_http

LOADS: dict[str, Callable[..., Any]] = {
    "appends": over_http.appends,
    "fenced_appends": over_http.fenced_appends,
    "puts": over_http.puts,
    "produce": clients.produce,
    "consume": clients.consume,
    "consume_arrow": clients.consume_arrow,
    "kafka_produce": clients.kafka_produce,
    "kafka_consume": clients.kafka_consume,
}


def main() -> None:
    """Run and print."""
    name, arguments = sys.argv[1:]
    run = LOADS[name]
    if asyncio.iscoroutinefunction(run):
        load = uvloop.run(run(**json.loads(arguments)))
    else:
        load = run(**json.loads(arguments))
    print(json.dumps(asdict(load)))


if __name__ == "__main__":
    main()
