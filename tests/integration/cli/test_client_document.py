"""The examples of docs/client.md and of the README, run against a real fleet."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from pytest_examples import find_examples

from nova_workers.client import NovaClient
from tests.support.data.documents import ROOT, blocks, commands
from tests.support.processes.command_line import Nova

_CREATE = ["nova", "agents", "create"]


@pytest.fixture
def examples(nova: Nova, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("NOVA_API_URL", "NOVA_API_KEY"):
        monkeypatch.setenv(name, nova.env[name])
    found: dict[str, Any] = {"__name__": "snippet"}
    for example in find_examples(str(ROOT / "docs" / "client.md")):
        exec(compile(example.source, str(example.path), "exec"), found)
    return found


def test_the_examples_of_the_client_do_what_the_page_says(
    examples: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    async def use() -> None:
        assert await examples["ask"]("Hello")
        async with NovaClient(os.environ["NOVA_API_URL"], os.environ["NOVA_API_KEY"]) as nova:
            await examples["print_answer"](nova, "Hello")
            assert isinstance(await examples["failed_runs"](nova), list)
            assert await examples["find_run"](nova, "run_01ARZ3NDEKTSV4RRFFQ69G5FAV") is None
            first, second = [await examples["submit_order"](nova, 4711) for _ in range(2)]
            assert first.id == second.id
            assert (await examples["find_run"](nova, first.id)).id == first.id

    asyncio.run(use())
    assert capsys.readouterr().out
    assert examples["ask_and_block"]("Hello")
    assert examples["patient_client"]("http://127.0.0.1:1", "key").base_url == "http://127.0.0.1:1"


def test_the_agent_of_the_readme_answers_its_program(
    nova: Nova, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = ROOT / "README.md"
    (create,) = [words for block in blocks("sh", readme) for words in commands(block) if words[:3] == _CREATE]
    (program,) = [block for block in blocks("python", readme) if block.not_run is not None]
    assert nova(*create[1:]).code == 0
    for name in ("NOVA_API_URL", "NOVA_API_KEY"):
        monkeypatch.setenv(name, nova.env[name])
    exec(compile(program.text, str(program), "exec"), {"__name__": "snippet"})
    assert capsys.readouterr().out == "succeeded You said: Remember that our office closes at six.\n"
