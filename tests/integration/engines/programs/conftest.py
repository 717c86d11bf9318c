"""Each test runs once for each program that is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nova_workers.engines.gemini import Gemini
from tests.integration.engines.programs.stage import ProgramStage
from tests.support.servers.installed_programs import CODEX, why_no_program
from tests.support.servers.model_server import ModelServer, model_server


def _codex(server: ModelServer) -> ProgramStage:
    return ProgramStage(CODEX, server, model="gpt-5", price_list="openai", url="/v1", tool="mcp__nova/")


def _gemini(server: ModelServer) -> ProgramStage:
    return ProgramStage(Gemini(), server, model="gemini-2.5-flash", price_list="google", url="", tool="mcp_nova_")


_LONG_WITH_GEMINI = frozenset(
    {
        "test_a_master_on_a_program_spawns_a_worker_and_sums_up",
        "test_a_peer_on_a_program_is_asked_again_in_its_conversation",
        "test_an_abort_while_the_model_thinks_ends_the_program",
        "test_an_answer_fulfils_the_schema_of_the_agent",
        "test_an_answer_that_breaks_off_is_a_failure_that_may_be_repeated",
        "test_another_model_of_the_vendor_answers_where_the_first_is_gone",
        "test_usage_of_a_program_counts_once_over_its_steps",
        "test_what_the_provider_refuses_is_classified",
    }
)
"""What both programs have in common, and codex shows: this one takes more than a second of CPU to start."""
_STAGES = {"codex": _codex, "gemini": _gemini}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-long` what gemini shows once more."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("stage") != "gemini":
            continue
        if isinstance(item, pytest.Function) and item.originalname in _LONG_WITH_GEMINI:
            item.add_marker(pytest.mark.long)


@pytest.fixture(params=sorted(_STAGES))
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[ProgramStage]:
    """A program and its model."""
    why = why_no_program(request.param)
    if why is not None:
        pytest.skip(why)
    async with model_server() as server:
        stage = _STAGES[request.param](server)
        yield stage
        await stage.close()
