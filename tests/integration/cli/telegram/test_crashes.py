"""The channel is killed at each of its calls: nothing is lost, and no text comes twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.cli.telegram.conftest import Script, Stage, soon
from tests.requirements import proves

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("cli_fleet"), pytest.mark.timeout(300)]

WINDOWS = [
    ("before", "getUpdates", 2),
    ("before", "sendChatAction", 1),
    ("after", "sendChatAction", 1),
    ("before", "sendMessage", 1),
    ("after", "sendMessage", 1),
    ("before", "editMessageText", 1),
    ("after", "editMessageText", 1),
    ("after", "editMessageText", 2),
]


@pytest.mark.parametrize(("side", "method", "number"), WINDOWS)
@proves("channel.crash")
async def test_a_channel_that_is_killed_loses_nothing_and_repeats_no_text(
    stage: Stage, side: str, method: str, number: int
) -> None:
    telegram = stage.telegram
    first = stage.start()
    seen = 0
    killed = asyncio.Event()

    async def kill(called: str, _: dict[str, Any]) -> None:
        nonlocal seen
        seen += called == method
        if called == method and seen == number and not killed.is_set():
            first.kill()
            killed.set()

    setattr(telegram, side, kill)
    stage.telegram.says("one")
    stage.telegram.says("two")
    await soon(killed.is_set)
    stage.start()
    wanted = ["You said: one", "You said: two"]
    await soon(lambda: sorted(text for text in telegram.texts() if text != "…") == wanted)
    await soon(lambda: telegram.unconfirmed == [])
    assert telegram.texts().count("…") <= 1
    assert len(await stage.runs()) == 2


@proves("channel.crash")
async def test_an_answer_that_a_killed_channel_had_begun_is_finished_in_its_message(
    stage: Stage, script: Script
) -> None:
    telegram = stage.telegram
    first = stage.start()
    telegram.says(script({"say": "Begun "}, {"sleep_s": 3}, {"say": "and ended."}))
    await soon(lambda: "Begun" in "".join(telegram.texts()))
    first.kill()
    stage.start()
    await soon(lambda: telegram.texts() == ["Begun and ended."])
    assert telegram.unconfirmed == []
    assert len(await stage.runs()) == 1
