"""The options --plan, --confirm and --yes, and the course of an order: make the plan, ask, carry the plan out.

Exactly the plan that the operator saw is carried out, or nothing: the plan's conditions go with the order, and the
controller or the partition refuses the order if the state has changed since, even after this command's last look.
"""

import functools
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from ...partition.errors import PlanChanged
from ..ui.exits import CHANGED
from ..ui.output import show_json

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Done = TypeVar("_Done")
DIGEST_BYTES = 8
"""Bytes of a plan's digest: enough to notice a change of the state, not to resist a forged plan of the same digest."""


class Plan(msgspec.Struct, frozen=True):
    """What an order would change. ``state``: the state that the order rests on, which ``digest`` covers; ``about``:
    further facts, which change all the time. Both are JSON. ``lines``: the plan as text. ``conditions``: arguments of
    the client's method that carries the order out; with them the order is refused in another state.
    """

    order: str
    state: Mapping[str, Any]
    about: Mapping[str, Any]
    lines: Sequence[str]
    conditions: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """The digest of ``order`` and ``state``, in hexadecimal digits."""
        data = msgspec.json.encode((self.order, self.state), order="sorted")
        return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()

    def show(self, output: str, *, err: bool = False) -> None:
        """Print the plan as JSON or text; ``err``: as text on standard error, before a question."""
        if output == "json" and not err:
            show_json({"plan": self.digest, "order": self.order, "state": self.state, "about": self.about})
            return
        for line in (f"{self.order}:", *(f"  {line}" for line in self.lines), f"  plan {self.digest}"):
            click.echo(line, err=err)


class Consent(msgspec.Struct, frozen=True):
    """The options of consent: ``only_plan``: --plan; ``digest``: of the plan to confirm (--confirm); ``yes``: --yes."""

    only_plan: bool
    digest: str | None
    yes: bool


def consent_options(function: _Command) -> _Command:
    """Add --plan, --confirm and --yes to a command; its parameter is ``consent``."""

    @functools.wraps(function)
    def run(*args: Any, only_plan: bool, digest: str | None, yes: bool, **options: Any) -> Any:
        if sum((only_plan, digest is not None, yes)) > 1:
            raise click.UsageError("give one of --plan, --confirm and --yes")
        return function(*args, consent=Consent(only_plan, digest, yes), **options)

    added: Any = run
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask. Without a terminal the command never asks."),
        click.option(
            "--confirm",
            "digest",
            metavar="DIGEST",
            help="Do it if the plan still has this digest; otherwise show the new plan, and end with code 6.",
        ),
        click.option("--plan", "only_plan", is_flag=True, help="Show what it would hit, with a digest; do nothing."),
    ):
        added = option(added)
    return added  # type: ignore[no-any-return]


async def under_consent(
    consent: Consent,
    output: str,
    look: Callable[[], Awaitable[Plan]],
    act: Callable[[Mapping[str, Any]], Awaitable[_Done]],
) -> _Done:
    """Carry an order out: call ``act`` with the conditions of the plan to which the operator agreed, or with none if no
    plan was asked for, and return its answer. ``look`` makes the plan.

    Ends the command after showing the plan (--plan); when the operator answers no; and with code CHANGED, showing the
    new plan, when the plan is no longer the one that the operator agreed to.
    """
    asks = not consent.yes and consent.digest is None and sys.stdin.isatty()
    if not (consent.only_plan or consent.digest is not None or asks):
        return await act({})
    plan = await look()
    if consent.only_plan:
        plan.show(output)
        sys.exit(0)
    if asks:
        plan.show(output, err=True)
        click.confirm("Do it?", abort=True, err=True)
    elif plan.digest != consent.digest:
        _changed(plan, output)
    try:
        return await act(plan.conditions)
    except PlanChanged:
        _changed(await look(), output)


def _changed(plan: Plan, output: str) -> NoReturn:
    click.echo("The state has changed since this was planned; nothing was done. The plan is now:", err=True)
    plan.show(output)
    sys.exit(CHANGED)
