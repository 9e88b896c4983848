"""Measurements, and figures over several of them: quartiles, and ratios of paired rounds. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Load:
    """The result of one run of a load generator: the operations that were acknowledged, and how long that took.

    The clock starts when all connections are there, and stops when the last operation is acknowledged. ``client_s``,
    ``servers_s``: processor time of the generator's process and of all servers meanwhile. Latencies: only of loads
    with one operation a request.
    """

    count: int
    seconds: float
    client_s: float
    servers_s: float
    p50_ms: float | None = None
    p99_ms: float | None = None


class Sample(NamedTuple):
    """One measurement. ``server_us``, ``client_us``: processor time of all servers, and of the client, an operation.

    An idle measurement has no operations: ``core_percent`` is the processor time of an average node, in percent of one
    core.
    """

    per_s: float = 0.0
    p50_ms: float | None = None
    p99_ms: float | None = None
    server_us: float | None = None
    client_us: float | None = None
    core_percent: float | None = None


class Quartiles(NamedTuple):
    """A quarter of the values lies below ``low``, a quarter above ``high``."""

    low: float
    median: float
    high: float


def sample_of(load: Load) -> Sample:
    """The sample of a load: its rate, and processor time an operation."""
    server_us, client_us = (seconds / load.count * 1e6 for seconds in (load.servers_s, load.client_s))
    return Sample(load.count / load.seconds, load.p50_ms, load.p99_ms, server_us, client_us)


def quartiles(values: Sequence[float]) -> Quartiles:
    """The quartiles of at least one value; those of one value are that value."""
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


def paired_ratio(ones: Sequence[float | None], others: Sequence[float | None]) -> Quartiles | None:
    """Quartiles of ``one / other`` over the rounds that have both; None if there is no such round."""
    ratios = [one / other for one, other in zip(ones, others, strict=True) if one is not None and other]
    return quartiles(ratios) if ratios else None
