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


@pytest.mark.parametrize(
    ("side", "method", "number"),
    [pytest.param(*window, marks=() if at % 4 == 1 else pytest.mark.long) for at, window in enumerate(WINDOWS)],
)
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
    await stage.restart()
    wanted = ["You said: one", "You said: two"]
    await soon(lambda: sorted(text for text in telegram.texts() if text != "…") == wanted)
    await soon(lambda: telegram.unconfirmed == [])
    assert telegram.texts().count("…") <= 1
    assert len(await stage.runs()) == 2


@proves("channel.crash")
@pytest.mark.long
async def test_an_answer_that_a_killed_channel_had_begun_is_finished_in_its_message(
    stage: Stage, script: Script
) -> None:
    telegram = stage.telegram
    first = stage.start()
    telegram.says(script({"say": "Begun "}, {"sleep_s": 3}, {"say": "and ended."}))
    await soon(lambda: "Begun" in "".join(telegram.texts()))
    first.kill()
    await stage.restart()
    await soon(lambda: telegram.texts() == ["Begun and ended."])
    assert telegram.unconfirmed == []
    assert len(await stage.runs()) == 1


@pytest.mark.parametrize("side", [pytest.param("before", marks=pytest.mark.long), "after"])
@proves("channel.crash")
async def test_a_pressed_button_counts_once_when_the_channel_is_killed_over_it(
    stage: Stage, script: Script, side: str
) -> None:
    telegram = stage.telegram
    agent_id = await stage.agent(capabilities={"user": {}})
    first = stage.start(NOVA_TELEGRAM__AGENT=agent_id)
    question = {"tool": {"name": "ask_user", "input": {"question": "Tea?", "options": ["tea", "coffee"]}}}
    telegram.says(script(question, {"say": "It is coming."}))
    await soon(lambda: any(message.buttons for message in telegram.messages))

    async def kill(called: str, _: dict[str, Any]) -> None:
        if called == "answerCallbackQuery":
            setattr(telegram, side, None)
            first.kill()

    setattr(telegram, side, kill)
    telegram.presses(next(message for message in telegram.messages if message.buttons), "coffee")
    await soon(lambda: first.has_ended)
    await stage.restart(NOVA_TELEGRAM__AGENT=agent_id)
    await soon(lambda: telegram.unconfirmed == [] and "It is coming." in telegram.texts())
    await soon(lambda: not any(message.buttons for message in telegram.messages))
    assert telegram.texts().count("It is coming.") == 1
    assert telegram.texts().count("…") <= 1
    assert len(await stage.runs()) == 1
