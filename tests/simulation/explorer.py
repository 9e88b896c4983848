"""Explores every state that a small world can reach: breadth first, each state once. A world is pure: its states are
values, and a step from a state always leads to the same one. So the first violation that is found has a shortest way,
which the counterexample tells step by step.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from traceback import extract_tb
from typing import Any, Protocol, TypeVar

import pytest

State = TypeVar("State", bound=Hashable)
Action = TypeVar("Action")


class World(Protocol[State, Action]):
    """What is explored. A state has everything on which the future depends, and nothing else: equal states have equal
    futures.
    """

    def initial(self) -> State:
        """The state in which every way begins."""
        ...

    def actions(self, state: State) -> Iterable[Action]:
        """All that may happen next, in an order that depends on the state alone."""
        ...

    def take(self, state: State, action: Action) -> State:
        """The state after an action. Raises AssertionError if the step itself breaks an invariant."""
        ...

    def check(self, state: State) -> None:
        """Raise AssertionError if an invariant does not hold in this state."""
        ...

    def tell(self, state: State, action: Action) -> str:
        """The action and its answer as a line for people."""
        ...


class Counterexample(AssertionError):
    """A shortest way to a state, or a step, that breaks an invariant. ``steps``: a line for each step."""

    def __init__(self, violated: str, steps: list[str]) -> None:
        lines = [f"{number:3}. {step}" for number, step in enumerate(steps, 1)]
        super().__init__("\n".join([f"{violated}, after {len(steps)} steps:", *lines]))
        self.steps = steps


@dataclass
class Explored:
    """What was explored: the number of states, of steps between them, and of states at each distance from the first."""

    states: int
    steps: int
    by_depth: list[int]

    def __str__(self) -> str:
        return f"{self.states} states, {self.steps} steps, {self.by_depth} by depth"


def explore(world: World[State, Action]) -> Explored:
    """Visit every state that can be reached; the world has to end. Raises Counterexample for the first invariant that
    does not hold.
    """
    first = world.initial()
    came: dict[State, tuple[State, Action] | None] = {first: None}
    _checked(world, came, first)
    ring, by_depth, steps = [first], list[int](), 0
    while ring:
        by_depth.append(len(ring))
        following: list[State] = []
        for state in ring:
            for action in world.actions(state):
                steps += 1
                after = _taken(world, came, state, action)
                if after not in came:
                    came[after] = state, action
                    _checked(world, came, after)
                    following.append(after)
        ring = following
    return Explored(len(came), steps, by_depth)


def refute(world: World[State, Action], violated: str, steps: int) -> None:
    """Explore a world whose machines are a mutant's: assert that it breaks an invariant, which matches ``violated``, by
    its own doing, and after ``steps`` steps at the earliest.
    """
    with pytest.raises(Counterexample, match=violated) as caught:
        explore(world)
    assert not isinstance(caught.value.__cause__, TypeError | NameError | AttributeError), "the mutant itself is broken"
    assert len(caught.value.steps) == steps, "it has another shortest way"


def _taken(world: World[State, Action], came: Any, state: State, action: Action) -> State:
    try:
        return world.take(state, action)
    except Exception as error:
        raise Counterexample(_words(error), [*_way(world, came, state), world.tell(state, action)]) from error


def _checked(world: World[State, Action], came: Any, state: State) -> None:
    try:
        world.check(state)
    except Exception as error:
        raise Counterexample(_words(error), _way(world, came, state)) from error


def _words(error: Exception) -> str:
    text = str(error).partition("\n")[0] or extract_tb(error.__traceback__)[-1].line
    return f"{text}" if isinstance(error, AssertionError) else f"{type(error).__name__}: {text}"


def _way(world: World[State, Action], came: dict[State, tuple[State, Action] | None], state: State) -> list[str]:
    steps: list[str] = []
    while (arrival := came[state]) is not None:
        state, action = arrival
        steps.append(world.tell(state, action))
    return steps[::-1]
