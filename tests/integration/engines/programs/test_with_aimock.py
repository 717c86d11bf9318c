"""The programs before a model server that we did not write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nova_workers.contracts.engine import EngineOptions
from tests.contract.engines.program_stage import codex_engine
from tests.support.servers.aimock_server import aimock_server, why_no_aimock
from tests.support.servers.installed_programs import why_no_program

pytestmark = pytest.mark.skipif(why_no_aimock() is not None, reason=str(why_no_aimock()))

ANSWER = "Gravity keeps planets in their orbits around the sun."


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fixtures = [{"match": {"userMessage": "explain gravity"}, "response": {"content": ANSWER}}]
    with aimock_server(tmp_path_factory.mktemp("aimock"), fixtures) as url:
        yield url


@pytest.mark.skipif(why_no_program("codex") is not None, reason=str(why_no_program("codex")))
async def test_codex_answers(model_url: str) -> None:
    engine = codex_engine(model_url)
    result = await engine.run("explain gravity", EngineOptions(model="gpt-5"), "sandbox")
    assert (result.error, result.text, result.stop_reason) == (None, ANSWER, "end_turn")
    await engine.close()
