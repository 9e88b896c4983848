"""Who of a consumer group reads which partitions: decided by each member alone, from what is owned now. Pure.

Members are counted by seats, resources ``members/0``, ``members/1``, and so on: a newcomer takes the first free one.
So a group never has more seats than it had members at once, however often they come and go. The rank of a seat among
those taken gives its member's share; shares differ by one at most and add up to all partitions. Who has more than its
share gives the surplus up, who has less takes what is free. Nobody has to agree with anybody: what counts is what is
owned, and when members look at the same time and want the same, one of them gets it and the other looks again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .model import Resource

SEATS = "members/"


class Plan(NamedTuple):
    """What a member does next."""

    give_up: list[str]
    take: list[str]


def free_seat(resources: Sequence[Resource]) -> str:
    """The first seat that nobody has."""
    taken = _seats(resources)
    return f"{SEATS}{next(number for number in range(len(taken) + 1) if number not in taken)}"


def plan(seat: str, mine: Sequence[str], wanted: Sequence[str], resources: Sequence[Resource]) -> Plan:
    """The next step of the member that has ``seat`` and owns ``mine``; the group reads ``wanted``."""
    seats = sorted({*_seats(resources), int(seat.removeprefix(SEATS))})
    share, rest = divmod(len(wanted), len(seats))
    due = share + (seats.index(int(seat.removeprefix(SEATS))) < rest)
    held = [resource for resource in wanted if resource in {*mine}]
    owned = {resource.resource for resource in resources if resource.owned}
    free = [resource for resource in wanted if resource not in owned and resource not in {*mine}]
    return Plan(held[due:], free[: max(0, due - len(held))])


def _seats(resources: Sequence[Resource]) -> set[int]:
    names = [resource.resource for resource in resources if resource.owned and resource.resource.startswith(SEATS)]
    return {int(number) for name in names if (number := name.removeprefix(SEATS)).isdecimal()}
