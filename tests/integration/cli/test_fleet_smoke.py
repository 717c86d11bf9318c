"""One real fleet: does it come up, answer and go down."""

import pytest

from nova_workers.base.config import Settings
from nova_workers.contracts.http.wire import StatelessRunCreate
from tests.support.processes.fleet import Fleet, fleet_env

pytestmark = pytest.mark.fleet


# Every test with a fleet shows that it comes up, answers and ends.
@pytest.mark.long
async def test_a_fleet_comes_up_answers_and_leaves_nothing_behind(settings: Settings) -> None:
    async with Fleet(fleet_env(settings), embeddings=True) as fleet:
        run = await fleet.client.runs.wait(StatelessRunCreate(message="hello"))
        assert run.status == "succeeded"
        assert run.text == "You said: hello"
        events = [event async for _, event in fleet.client.runs.stream(StatelessRunCreate(message="again"))]
        assert events[0].type == "stream_start"
        assert events[-1].type == "stream_end"
        processes = fleet.processes
    assert all(process.exit_code is not None for process in processes)
