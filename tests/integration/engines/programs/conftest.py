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


_STAGES = {"codex": _codex, "gemini": _gemini}


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
