"""Whatever model Codex knows or not: it is offered the turn's tools, and none that the program runs itself."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from dirty_equals import Contains

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import text_of
from nova_workers.engines.codex import Codex
from nova_workers.engines.codex.checking import check_offer
from nova_workers.engines.codex.installed import HARMLESS, Installed, offered_tools, read_installed
from nova_workers.engines.programs.transcript import Prompt
from nova_workers.engines.programs.vendor import ProgramSettings, Request
from tests.integration.engines.programs.stage import ProgramStage
from tests.requirements import proves
from tests.support.servers.installed_programs import CODEX, program_path, why_no_program
from tests.support.servers.model_server import Part, Stream, model_server

pytestmark = pytest.mark.skipif(why_no_program("codex") is not None, reason=str(why_no_program("codex")))

PROGRAM = str(program_path("codex"))
ENVIRONMENT = {"PATH": os.environ["PATH"]}
SETTINGS = ProgramSettings(ENVIRONMENT, program_path("codex"), "k")


class OtherCatalog(Codex):
    """Codex with another catalog of models than its own without tools."""

    def __init__(self, installed: Installed) -> None:
        super().__init__()
        self._installed[PROGRAM] = (None, installed)


def _request(model: str) -> Request:
    return Request(PROGRAM, model, "", Prompt("hi", ()), None, 60.0)


@pytest.fixture(params=["gpt-5.5", "gpt-5.5-codex", "gpt-6-sol"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[ProgramStage]:
    """The program with one of the models that its catalog gives tools, or with one that it does not know."""
    async with model_server() as server:
        stage = ProgramStage(CODEX, server, model=request.param, price_list="openai", url="/v1", tool="mcp__nova/")
        yield stage
        await stage.close()


@proves("engine.codex-models")
async def test_a_model_is_offered_the_turns_tools_and_none_of_the_programs_own(
    stage: ProgramStage, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("inside\n")
    stage.server.reply(stage.calls(("Read", {"file_path": str(tmp_path / "note.txt")})), stage.says("It says so."))
    result = await stage.engine().run("hi", stage.options(cwd=str(tmp_path)), "controlled")
    assert (result.error, result.text) == (None, "It says so.")
    assert "inside" in text_of(result.tool_calls[0].result or ())
    assert len(stage.server.requests) == 2, "The check asks no provider."
    for request in stage.server.requests:
        assert set(offered_tools(request)) == {*HARMLESS, "mcp__nova"}
        (ours,) = (tool["tools"] for tool in request["tools"] if tool["type"] == "namespace")
        assert {tool["name"] for tool in ours} == {"Read", "Write", "Edit", "Glob", "Grep"}


@proves("engine.codex-models")
async def test_the_tools_of_the_program_that_stay_read_nothing_and_one_that_is_off_cannot_be_called(
    tmp_path: Path,
) -> None:
    (tmp_path / "note.txt").write_text("inside\n")
    read = [{"server": server, "uri": f"file://{tmp_path}/note.txt"} for server in ("nova", "codex", "file")]
    calls = [
        ("list_mcp_resources", {}),
        ("list_mcp_resources", {"server": "nova"}),
        ("list_mcp_resource_templates", {}),
        *(("read_mcp_resource", each) for each in read),
        ("request_user_input", {"questions": [{"id": "q", "header": "Q", "question": "Which?", "options": []}]}),
    ]
    async with model_server() as server:
        stage = ProgramStage(CODEX, server, model="gpt-5.5", price_list="openai", url="/v1", tool="mcp__nova/")
        parts = [Part("tool", (f"call_{at}", name, given)) for at, (name, given) in enumerate(calls)]
        server.reply(Stream(tuple(parts)), stage.says("I have none."))
        result = await stage.engine().run("hi", stage.options(cwd=str(tmp_path)), "controlled")
        await stage.close()
    assert (result.error, result.text, result.tool_calls) == (None, "I have none.", ())
    answers = {
        item["call_id"]: str(item["output"])
        for item in server.requests[-1]["input"]
        if item["type"] == "function_call_output"
    }
    assert list(answers.values()) == [
        '{"resources":[]}',
        Contains('Method not found("resources/list")'),
        '{"resourceTemplates":[]}',
        Contains('Method not found("resources/read")'),
        "unknown MCP server 'codex'",
        "unknown MCP server 'file'",
        "unsupported call: request_user_input",
    ]


@pytest.mark.long
async def test_every_model_of_the_catalog_passes_the_check() -> None:
    installed = await read_installed(PROGRAM, ENVIRONMENT)
    for model in installed.catalog["models"]:
        await CODEX.prepare(SETTINGS, _request(model["slug"]))


@proves("engine.codex-models")
async def test_a_version_that_offers_tools_of_its_own_is_not_used() -> None:
    own = await asyncio.to_thread(
        subprocess.run, [PROGRAM, "debug", "models", "--bundled"], capture_output=True, check=True
    )
    installed = replace(await read_installed(PROGRAM, ENVIRONMENT), catalog=json.loads(own.stdout))
    for model, problem in {"gpt-5.5": "apply_patch, tool_search", "gpt-6-sol": "exec"}.items():
        with pytest.raises(EngineFailure, match=f"model '{model}' offers tools of its own: .*{problem}"):
            await check_offer(OtherCatalog(installed), installed, SETTINGS, _request(model))


@proves("engine.codex-models")
async def test_a_program_that_does_not_report_what_it_has_is_not_used(tmp_path: Path) -> None:
    old = tmp_path / "codex"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "codex-cli 0.1" && exit 0\nexit 2\n')
    old.chmod(0o755)
    with pytest.raises(EngineFailure, match=r"features list` does not report .*: it ended with 2"):
        await Codex().prepare(SETTINGS, replace(_request("gpt-5.5"), program=str(old)))


async def test_a_version_and_a_model_are_checked_once_until_the_program_is_replaced(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    wrapper = tmp_path / "codex"
    text = f'#!/bin/sh\necho "$1" >> {calls}\nexec {PROGRAM} "$@"\n'
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    codex, request = Codex(), replace(_request("gpt-5.5"), program=str(wrapper))
    for _ in range(2):
        await codex.prepare(SETTINGS, request)
    assert sorted(calls.read_text().split()) == ["--version", "debug", "exec", "features"]
    wrapper.write_text(f"{text}# another version\n")
    await codex.prepare(SETTINGS, request)
    assert len(calls.read_text().split()) == 8
