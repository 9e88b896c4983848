"""The progress of a stream: the offsets that it has reached, and the records that its next step reads. Pure, without
Spark.

Spark stores a Progress as JSON in the checkpoint; a restarted query has nothing else. So a Progress has all that is
needed to repeat a micro-batch with the same records: the offsets ``next`` at which the following step begins, the
offsets ``from`` at which this step began in partitions that were new in it, and the id (``id``) of each topic. Spark
does not store the progress before the first micro-batch, and asks for it anew to repeat that micro-batch. So this
progress is marked ``initial``, and a step that starts from it has ``from`` for every partition.
"""

from collections.abc import Mapping
from typing import Any

from .ranges import DataLost, Range, Seen, Topics

Progress = dict[str, dict[str, Any]]
"""``{topic: {"id": topic_id, "next": {"0": offset, "1": offset}, "from": {"1": offset}, "initial": True}}``;
``from`` and ``initial`` are there only where they are needed.
"""
_GONE = "is gone, or the options do not select it any more: the checkpoint is that of a query which read it"


def beginning(starts: Mapping[str, Mapping[int, int]], seen: Topics) -> Progress:
    """The progress before the first micro-batch, from the first offset to read of each partition."""
    return {topic: {**step, "initial": True} for topic, step in _at(starts, seen).items()}


def ends(seen: Topics) -> Progress:
    """The progress after every record that the logs have: at their ends."""
    return _at({topic: {p: end for p, (_, end) in now.bounds.items()} for topic, now in seen.items()}, seen)


def _at(offsets: Mapping[str, Mapping[int, int]], seen: Topics) -> Progress:
    return {
        topic: {"id": now.topic_id, "next": {str(p): offsets[topic][p] for p in sorted(now.bounds)}}
        for topic, now in sorted(seen.items())
    }


def advance(start: Progress, seen: Topics, rows_max: int | None, *, fail: bool) -> Progress:
    """The progress after the next step, up to the log ends, of at most ``rows_max`` rows. Returns ``start`` itself if
    there is nothing to read.

    Topics and partitions that are not in ``seen`` stay where they are. If ``fail``, raises DataLost for a topic that
    was deleted or created again, a partition that is gone, and a log that ends before the offset that was read to.
    """
    if fail:
        for topic, before in start.items():
            _check_same(topic, before, seen.get(topic))
    todo = {
        (topic, p): (_next_of(start, topic, now, p, log_start, fail), log_end)
        for topic, now in sorted(seen.items())
        for p, (log_start, log_end) in sorted(now.bounds.items())
    }
    sizes = {place: max(0, end - begin) for place, (begin, end) in todo.items()}
    taken = sizes if rows_max is None else shares(sizes, rows_max)
    step = {topic: _step(start, topic, seen.get(topic), todo, taken) for topic in sorted({*start, *seen})}
    return start if _forget_new(step) == _forget_new(start) else step


def ranges(start: Progress, end: Progress) -> list[Range]:
    """The ranges of the records between two progresses, without empty ranges."""
    found = []
    for topic, step in end.items():
        begins = _begins(start.get(topic, {}), step)
        for p, stop in step["next"].items():
            found.append(Range(topic, int(p), begins[p], stop, step["id"]))
    return [each for each in found if each.start < each.end]


def _begins(before: Mapping[str, Any], step: Mapping[str, Any]) -> dict[str, int]:
    """The offset at which the records of a step begin, by partition; ``before`` is the step before it."""
    known = before["next"] if before.get("id") == step["id"] else {}
    # The first micro-batch may end at the initial progress itself: then it is empty, and begins where it ends.
    own = step["next"] if "initial" in step else step.get("from", {})
    # Spark asks for an initial start anew: it may be later than the one that the step was made from, so ``from`` wins.
    return {**known, **own} if "initial" in before else {**own, **known}


def shares(sizes: Mapping[Any, int], total_max: int) -> dict[Any, int]:
    """Divide ``total_max`` rows in proportion to the sizes, none beyond its size. Each size above 0 gets at least 1
    while there are enough.
    """
    if sum(sizes.values()) <= total_max:
        return dict(sizes)
    # The largest first, so none starves: a partition that gets nothing now grows into one of the largest.
    waiting = sorted((place for place in sizes if sizes[place]), key=lambda place: -sizes[place])[:total_max]
    given = dict.fromkeys(sizes, 0) | dict.fromkeys(waiting, 1)
    room, rest = total_max - len(waiting), sum(sizes[place] - 1 for place in waiting)
    seen = 0
    for place in waiting:
        before, seen = seen, seen + sizes[place] - 1
        given[place] += (room * seen // rest - room * before // rest) if rest else 0
    return given


def _check_same(topic: str, before: dict[str, Any], now: Seen | None) -> None:
    if now is None:
        raise DataLost(f"topic {topic} {_GONE}")
    if now.topic_id != before["id"]:
        raise DataLost(f"topic {topic} was deleted and created again (topic id {before['id']}, now {now.topic_id})")
    for p, offset in before["next"].items():
        if int(p) not in now.bounds:
            raise DataLost(f"{topic}/{p} {_GONE}")
        if offset > now.bounds[int(p)][1]:
            raise DataLost(f"{topic}/{p} was read to {offset}, and ends at {now.bounds[int(p)][1]}")


def _next_of(start: Progress, topic: str, now: Seen, partition: int, log_start: int, fail: bool) -> int:
    """The next offset of a partition; a new partition is read from its log start.

    Without ``fail``, a partition whose next records were dropped goes on at its log start, too: otherwise a step would
    be spent on every ``rows_max`` of the records that are gone.
    """
    known = _known(start, topic, now).get(str(partition))
    return log_start if known is None else max(int(known), 0 if fail else log_start)


def _known(start: Progress, topic: str, now: Seen | None) -> Mapping[str, int]:
    """The next offsets of the topic's partitions; none if the topic was deleted and created again."""
    before = start.get(topic)
    return before["next"] if before is not None and (now is None or before["id"] == now.topic_id) else {}


def _step(
    start: Progress,
    topic: str,
    now: Seen | None,
    todo: Mapping[tuple[str, int], tuple[int, int]],
    taken: Mapping[tuple[str, int], int],
) -> dict[str, Any]:
    """The step of one topic; ``now`` None: the topic was not seen, perhaps only for a moment."""
    known = _known(start, topic, now)
    begins = {int(p): offset for p, offset in known.items()}
    if now is not None:
        begins |= {p: todo[topic, p][0] for p in now.bounds}
    step: dict[str, Any] = {
        "id": start[topic]["id"] if now is None else now.topic_id,
        "next": {str(p): begins[p] + taken.get((topic, p), 0) for p in sorted(begins)},
    }
    is_initial = "initial" in start.get(topic, {})
    if new := {str(p): begins[p] for p in sorted(begins) if is_initial or str(p) not in known}:
        step["from"] = new
    return step


def _forget_new(progress: Progress) -> dict[str, tuple[int, dict[str, int]]]:
    return {topic: (step["id"], step["next"]) for topic, step in progress.items()}
