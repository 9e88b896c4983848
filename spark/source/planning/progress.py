"""How far a stream has come, what it takes next, and which records that is. Pure, and free of Spark.

A Progress is what Spark keeps as JSON in the checkpoint, and all that a restarted query knows. So it has everything
that a repetition of a micro-batch needs to read the same records: ``next`` offsets, ``from`` for partitions that were
new in this step, and the incarnation (``id``) of each topic.
"""

from collections.abc import Mapping
from typing import Any

from .ranges import DataLost, Range, Seen, Topics

Progress = dict[str, dict[str, Any]]
"""``{topic: {"id": topic_id, "next": {"0": offset}, "from": {"1": offset}}}``."""


def beginning(starts: Mapping[str, Mapping[int, int]], seen: Topics) -> Progress:
    """Before the first record."""
    return {
        topic: {"id": now.topic_id, "next": {str(p): starts[topic][p] for p in sorted(now.bounds)}}
        for topic, now in sorted(seen.items())
    }


def ends(seen: Topics) -> Progress:
    """As if everything was read."""
    return beginning({topic: {p: end for p, (_, end) in now.bounds.items()} for topic, now in seen.items()}, seen)


def advance(start: Progress, seen: Topics, rows_max: int | None, *, fail: bool) -> Progress:
    """The next step: up to the logs' ends, but at most ``rows_max`` rows. ``start`` itself when there is nothing.

    Raises DataLost if ``fail`` and a topic is gone, or another one has its name.
    """
    for topic, before in start.items():
        _check_same(topic, before, seen.get(topic), fail)
    todo = {
        (topic, p): (_next_of(start, topic, now, p, log_start), log_end)
        for topic, now in sorted(seen.items())
        for p, (log_start, log_end) in sorted(now.bounds.items())
    }
    sizes = {place: max(0, end - begin) for place, (begin, end) in todo.items()}
    taken = sizes if rows_max is None else shares(sizes, rows_max)
    step = {topic: _step(start, topic, now, todo, taken) for topic, now in sorted(seen.items())}
    return start if _forget_new(step) == _forget_new(start) else step


def ranges(start: Progress, end: Progress) -> list[Range]:
    """What lies between two steps."""
    found = []
    for topic, step in end.items():
        before = start.get(topic, {})
        known = before.get("next", {}) if before.get("id") == step["id"] else {}
        begins = {**known, **step.get("from", {})}
        for p, stop in step["next"].items():
            found.append(Range(topic, int(p), begins[p], stop, step["id"]))
    return [each for each in found if each.start < each.end]


def shares(sizes: Mapping[Any, int], total_max: int) -> dict[Any, int]:
    """At most ``total_max`` altogether, in proportion to the sizes; nobody who has something gets nothing, while that
    is possible.
    """
    if sum(sizes.values()) <= total_max:
        return dict(sizes)
    # The longest first: who had to wait because there were too many has become one of them.
    waiting = sorted((place for place in sizes if sizes[place]), key=lambda place: -sizes[place])[:total_max]
    given = dict.fromkeys(sizes, 0) | dict.fromkeys(waiting, 1)
    room, rest = total_max - len(waiting), sum(sizes[place] - 1 for place in waiting)
    seen = 0
    for place in waiting:
        before, seen = seen, seen + sizes[place] - 1
        given[place] += (room * seen // rest - room * before // rest) if rest else 0
    return given


def _check_same(topic: str, before: dict[str, Any], now: Seen | None, fail: bool) -> None:
    if now is None and fail:
        raise DataLost(f"topic {topic} is gone")
    if now is not None and now.topic_id != before["id"] and fail:
        raise DataLost(f"topic {topic} was deleted and made anew (topic id {before['id']}, now {now.topic_id})")
    if now is not None and now.topic_id == before["id"] and fail:
        for p, offset in before["next"].items():
            if int(p) not in now.bounds:
                raise DataLost(f"{topic}/{p} is gone")
            if offset > now.bounds[int(p)][1]:
                raise DataLost(f"{topic}/{p} was read to {offset}, and ends at {now.bounds[int(p)][1]}")


def _next_of(start: Progress, topic: str, now: Seen, partition: int, log_start: int) -> int:
    """Where reading goes on; what is new is read from its first record."""
    known = _known(start, topic, now).get(str(partition))
    return log_start if known is None else max(int(known), 0)


def _known(start: Progress, topic: str, now: Seen) -> Mapping[str, int]:
    before = start.get(topic)
    return before["next"] if before is not None and before["id"] == now.topic_id else {}


def _step(
    start: Progress,
    topic: str,
    now: Seen,
    todo: Mapping[tuple[str, int], tuple[int, int]],
    taken: Mapping[tuple[str, int], int],
) -> dict[str, Any]:
    known = _known(start, topic, now)
    begins = {p: todo[topic, p][0] for p in sorted(now.bounds)}
    step: dict[str, Any] = {"id": now.topic_id, "next": {str(p): b + taken[topic, p] for p, b in begins.items()}}
    if new := {str(p): b for p, b in begins.items() if str(p) not in known}:
        step["from"] = new
    return step


def _forget_new(progress: Progress) -> dict[str, tuple[int, dict[str, int]]]:
    return {topic: (step["id"], step["next"]) for topic, step in progress.items()}
