import asyncio

import pytest
import uvloop

from .transports import Run, Scenario


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_and_expect_no_leftovers(scenario: Scenario) -> None:
        async def main() -> None:
            await scenario()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return run_and_expect_no_leftovers
