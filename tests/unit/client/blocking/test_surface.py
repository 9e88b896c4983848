"""``stockade.sync`` has what ``stockade`` has: the same names, with the same parameters."""

import inspect
from typing import Any

import pytest

import stockade
from stockade import sync
from stockade.client.consumer.group import GroupReading

TWINS: list[tuple[type, type]] = [
    (stockade.Client, sync.Client),
    (stockade.Producer, sync.Producer),
    (stockade.Delivery, sync.Delivery),
    (stockade.Consumer, sync.Consumer),
    (stockade.Reading, sync.Reading),
    (GroupReading, sync.GroupReading),
    (stockade.Session, sync.Session),
    (stockade.Fence, sync.Fence),
    (stockade.Ownership, sync.Ownership),
]
OF_THE_LIBRARY = {
    *("affinity", "calls", "outage", "metadata", "begin", "end", "stop", "compare", "lose", "put_back"),
    *("put_back_owned", "expect_successor", "succeeded", "append_parts", "news"),
}
"""Public only for other modules of the library."""
OF_TASKS = {"guard", "lost"}
"""A thread cannot be cancelled: `wait_lost`, `is_lost` and `on_lost` take their place."""
MADE_BY_THE_LIBRARY = {sync.Delivery, sync.Reading, sync.GroupReading, sync.Fence, sync.Ownership}
"""Applications do not call these classes."""


def public(kind: type) -> set[str]:
    names = {name for name in dir(kind) if not name.startswith("_")}
    made = kind() if kind in (stockade.Client, stockade.Producer, stockade.Consumer) else None
    return names | {name for name in vars(made or object) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    described = list(inspect.signature(function).parameters.values())
    return [(each.name, each.kind, each.default) for each in described if each.name != "self"]


@pytest.mark.parametrize(("kind", "twin"), TWINS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_name_is_there_with_the_same_parameters(kind: type, twin: type) -> None:
    here = {*dir(twin), *inspect.getsource(twin).replace("self.", " ").replace(":", " ").split()}
    wanted = public(kind) - OF_THE_LIBRARY - OF_TASKS
    assert wanted - here == set()
    for name in wanted:
        method = getattr(kind, name, None)
        if inspect.isfunction(method):
            assert parameters(getattr(twin, name)) == parameters(method), name
    if twin not in MADE_BY_THE_LIBRARY:
        assert parameters(twin) == parameters(kind)


def test_a_blocking_method_has_the_documentation_of_its_twin() -> None:
    assert sync.Client.create_topic.__doc__ == stockade.Client.create_topic.__doc__
