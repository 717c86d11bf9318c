"""Spans of the model calls of an order have none of its content, whatever the settings of telemetry say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import proves
from tests.support.processes.preloaded import preloaded_output

CANARY = "xanthic-quokka-5531"


@pytest.mark.parametrize("words", [(), ("content",)], ids=["metadata", "content"])
@proves("order.secret")
async def test_the_spans_of_an_order_have_none_of_its_content(
    database_url: str, redis_url: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    program = "tests.support.processes.print_order_spans"
    done = await asyncio.to_thread(
        preloaded_output, program, database_url, redis_url, str(tmp_path), CANARY, *words, folder=tmp_path
    )
    printed: dict[str, Any] = json.loads(done.splitlines()[-1])
    # The general's call was refused with a message that quotes the order.
    assert (printed["stop_reason"], printed["calls"]) == ("ok", 3)
    assert "nova.test" in {span["name"] for span in printed["spans"]}
    chats = [span for span in printed["spans"] if span["attributes"].get("gen_ai.operation.name") == "chat"]
    assert len(chats) == 3
    assert CANARY not in json.dumps(printed["spans"])
