"""`stockade cluster balance` and `stockade cluster controllers`: the placement of replicas, leaders and controllers."""

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import click
import msgspec

from ...client.api.client import Client
from ...partition.api.cluster import BalanceMode, BalancePlan, BalanceSettings, Cluster, PlannedMove
from ...partition.errors import InvalidRequest
from ..ui.connection import with_client
from ..ui.exits import PLANNED
from ..ui.manual import Manual
from ..ui.output import count, output_option, rest, show_json, show_result, table
from .consent import Consent, Plan, consent_options, under_consent

ROWS_MAX = 100
"""Rows of a plan that the table shows; JSON has all."""
WHY = {
    "disk": "its disk is full",
    "zone": "two replicas in one zone",
    "spread": "it holds more than others",
    "home": "homes of leaders are spread",
}
WAITS = {
    "leaving": "being removed",
    "announced": "never started yet",
    "away": "no answer",
    "unstable": "seen up by the controller's leader for less than {stable_s:g} s (stable_ms)",
    "slow": "the disk was slow in the last {stable_s:g} s (stable_ms)",
    "full": "the disk is full",
    "version": "other software than most nodes have",
}
"""Reasons why the balance plan gives a node nothing, or why the cluster begins no move by itself, in words."""
SETTINGS = {field.name: field for field in msgspec.structs.fields(BalanceSettings)}


class BalanceSettingType(click.ParamType[tuple[str, Any]]):
    """NAME=VALUE for one setting of the balance, checked against the fields of BalanceSettings."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        name, found, text = str(value).partition("=")
        if not found or name not in SETTINGS:
            self.fail(f"{value!r} is not NAME=VALUE with one of {', '.join(SETTINGS)}", param, ctx)
        words = get_args(BalanceMode) if name == "mode" else ()
        if words and text not in words:
            self.fail(f"mode: must be {', '.join(words[:-1])} or {words[-1]}, not {text!r}", param, ctx)
        try:
            return name, msgspec.convert(text, SETTINGS[name].type, strict=False)
        except msgspec.ValidationError as error:
            self.fail(f"{name}: {error}", param, ctx)


@click.command(
    cls=Manual,
    short_help="Bring leaders and replicas into balance, or say how that is kept.",
    exits=PLANNED,
    examples=[
        ("What would move, and why?", "stockade cluster balance --plan"),
        ("Nothing moves by itself for now", "stockade cluster balance --set mode=off"),
        ("Copy at 10 MB/s a node", "stockade cluster balance --set copy_bytes_per_s=10000000"),
    ],
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=BalanceSettingType(),
    metavar="NAME=VALUE",
    help="Change a setting, at once and on all nodes; repeat it for several. mode (on: leaders go home and replicas"
    " move; leaders: leaders go home; off), moves_at_once (1 to 64), copy_bytes_per_s (0: no bound), stable_ms (1000"
    " to 86400000), disk_used_percent_max (50 to 99). Nothing is balanced then.",
)
@consent_options
@output_option
@with_client
async def balance(client: Client, settings: Sequence[tuple[str, Any]], *, consent: Consent, output: str) -> None:
    """Begin all that brings the cluster into balance now, whatever the mode: leaders go home to the first of their
    replicas, replicas go to nodes that hold less and from full disks.

    The cluster does the same by itself, a few partitions at a time, unless the mode is off. Moves are as safe as those
    of `stockade cluster move`; `stockade cluster status` shows those under way.
    """
    if settings:
        if consent.only_plan or consent.digest is not None:
            raise click.UsageError("--set changes settings only: give it without --plan and --confirm")
        changed = await client.change_balance(dict(settings))
        show_result(changed, _settings(changed), output)
        return

    async def act(conditions: Mapping[str, Any]) -> BalancePlan:
        wanted = conditions.get("if_plan") or (await client.balance_plan()).plan
        return await client.balance(if_plan=wanted)

    begun = await under_consent(consent, output, partial(balance_plan, client), act)
    text = f"begun: {count(len(begun.moves), 'partition')} to move, {count(len(begun.leaders), 'leader')} to go home"
    show_result(begun, text, output)


async def balance_plan(client: Client) -> Plan:
    """The plan of the moves and transfers that would bring the cluster into balance now."""
    plan = await client.balance_plan()
    rows = [
        (f"{each.topic}/{each.partition}", *_ends(each), f"{each.copied_bytes:,}", WHY[each.why]) for each in plan.moves
    ]
    rows += [
        (f"{each.topic}/{each.partition}", each.leader_node, each.home, "0", "its leader goes home")
        for each in plan.leaders
    ]
    lines = table(["PARTITION", "FROM", "TO", "BYTES", "WHY"], rows[:ROWS_MAX]).splitlines() if rows else []
    lines += [f"{line}; --output json has all" for line in rest(len(rows) - ROWS_MAX)]
    moves, leaders = count(len(plan.moves), "partition"), count(len(plan.leaders), "leader")
    lines.append(f"{moves} to move, {leaders} to go home, {plan.copied_bytes:,} bytes to copy")
    lines += ["there is more, which the next plan has"] if plan.is_cut else []
    lines += [f"moving already: {count(plan.moving, 'partition')}"] if plan.moving else []
    lines += _waiting(plan)
    lines.append(_settings(plan.settings))
    about = msgspec.to_builtins(plan)
    return Plan("balance", {"plan": about.pop("plan")}, about, lines, {"if_plan": plan.plan})


def _waiting(plan: BalancePlan) -> Iterator[str]:
    """The nodes that the plan gives nothing, or that keep the cluster from beginning moves; one line a reason."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for node, why in dict.fromkeys([*plan.barred.items(), *plan.held.items()]):
        given = ["given nothing"] if plan.barred.get(node) == why else []
        held = ["nothing moves by itself meanwhile"] if plan.held.get(node) == why else []
        nodes.setdefault((why, ", and ".join([*given, *held])), []).append(node)
    for (why, effect), names in nodes.items():
        reason = WAITS.get(why, why).format(stable_s=plan.settings.stable_ms / 1000)
        yield f"{', '.join(names)}: {reason}; {effect}"


def _ends(move: PlannedMove) -> tuple[str, str]:
    """(The nodes that lose a replica, those that gain one); if only the order changes, the first replica before and
    after.
    """
    going = [node for node in move.replicas if node not in move.target]
    coming = [node for node in move.target if node not in move.replicas]
    return (",".join(going), ",".join(coming)) if coming else (move.replicas[0], move.target[0])


def _settings(settings: BalanceSettings) -> str:
    return ", ".join(f"{name}={value}" for name, value in msgspec.structs.asdict(settings).items())


@click.command(
    cls=Manual,
    short_help="Choose the nodes of the controller group.",
    exits=PLANNED,
    examples=[
        ("Three nodes, one in each zone", "stockade cluster controllers a.1,b.1,c.1"),
        ("What would that change?", "stockade cluster controllers a.1,b.1,c.1 --plan"),
        ("Spread over zones by the cluster", "stockade cluster controllers --auto"),
    ],
)
@click.argument("nodes", required=False)
@click.option(
    "--auto", is_flag=True, help="The cluster spreads the controller group over zones by itself, as at first."
)
@consent_options
@output_option
@with_client
async def controllers(client: Client, nodes: str | None, *, auto: bool, consent: Consent, output: str) -> None:
    """Move the controller group to NODES (1, 3 or 5, separated by commas), where it stays. Without NODES, list them.

    Members of the new group have everything before old ones leave; sessions and grants go on. A node that is removed
    later is replaced by another one. `stockade cluster status` shows the group.
    """
    if nodes is not None and auto:
        raise click.UsageError("give NODES or --auto")
    if nodes is None and not auto:
        here = (await client.cluster()).controllers
        show_result({"controllers": here}, ", ".join(here), output)
        return
    wanted = None if nodes is None else [node.strip() for node in nodes.split(",")]

    def act(conditions: Mapping[str, Any]) -> Awaitable[Cluster]:
        return client.choose_controllers(wanted, **conditions)

    moved = await under_consent(consent, output, partial(controllers_plan, client, wanted), act)
    if output == "json":
        show_json({"controllers": moved.controllers, "chosen": wanted})
    else:
        click.echo(f"controllers: {'spread by the cluster' if wanted is None else 'moving to ' + ', '.join(wanted)}")


async def controllers_plan(client: Client, wanted: Sequence[str] | None) -> Plan:
    """The plan of moving the controller group to these nodes; ``wanted`` None: of letting the cluster spread it."""
    plan = await client.controllers_plan(wanted)
    if not plan.target:
        raise InvalidRequest("no node is a controller yet")
    lines = [f"controllers now: {', '.join(plan.controllers)}", f"then: {', '.join(plan.target)}"]
    lines.append(
        "any one zone can be lost, and a majority is left"
        if plan.outlives_a_zone
        else "there is a zone, or a node without one, whose loss stops sessions, grants and changes of topics"
    )
    state = {"plan": plan.plan, "controllers": plan.controllers, "target": plan.target}
    return Plan("choose controllers", state, {"outlives_a_zone": plan.outlives_a_zone}, lines, {"if_plan": plan.plan})
