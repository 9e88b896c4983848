"""Runs of consecutive ports, as a machine with several node processes takes them."""

from contextlib import suppress

from stockade.cli.local_cluster.ports import free_ports, reserve


def consecutive_ports(runs: int, length: int) -> list[int]:
    """The first ports of so many runs of free ports."""
    found: list[int] = []
    while len(found) < runs:
        (first,) = free_ports(1)
        with suppress(OSError):
            for number in range(1, length):
                reserve(first + number)
            found.append(first)
    return found
