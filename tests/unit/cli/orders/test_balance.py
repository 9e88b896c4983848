"""What `stockade cluster balance` says of nodes that wait, and of settings that there are not."""

import asyncio
from typing import cast

from click.testing import CliRunner
from msgspec import structs

from stockade.cli.main import main
from stockade.cli.orders.balance import balance_plan
from stockade.client.api.client import Client
from stockade.partition.api.cluster import BalancePlan, BalanceSettings

PLAN = BalancePlan("5f1a0c44d1be9a02", BalanceSettings(stable_ms=90_000), [], [], 0, 0, 0, {})


class Asked:
    """A client whose cluster has this plan."""

    def __init__(self, plan: BalancePlan) -> None:
        self._plan = plan

    async def balance_plan(self) -> BalancePlan:
        return self._plan


def lines(plan: BalancePlan) -> list[str]:
    return list(asyncio.run(balance_plan(cast("Client", Asked(plan)))).lines)


def test_nodes_that_wait_for_one_reason_are_named_once_in_one_line_with_the_seconds() -> None:
    waiting = {"n1": "unstable", "n2": "unstable"}
    barred = {**waiting, "n3": "full"}
    said = lines(structs.replace(PLAN, barred=barred, held={**waiting, "n4": "version"}))
    assert [line for line in said if line.startswith("n")] == [
        "n1, n2: seen up by the controller's leader for less than 90 s (stable_ms); given nothing, and nothing"
        " moves by itself meanwhile",
        "n3: the disk is full; given nothing",
        "n4: other software than most nodes have; nothing moves by itself meanwhile",
    ]


def test_a_reason_of_newer_nodes_is_shown_as_it_is() -> None:
    assert "n1: tired; given nothing" in lines(structs.replace(PLAN, barred={"n1": "tired"}))


def test_a_mode_that_there_is_not_is_refused_with_the_words_that_there_are() -> None:
    done = CliRunner().invoke(main, ["cluster", "balance", "--set", "mode=foo"])
    assert done.exit_code == 2
    assert "mode: must be on, leaders or off, not 'foo'" in done.stderr
