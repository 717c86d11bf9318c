"""Questions and approvals as buttons."""

from __future__ import annotations

import uuid

import pytest

from nova_workers.contracts.waits import RunAnswer
from tests.integration.cli.telegram.conftest import ANN, BEN, MALLORY, Script, Stage, soon
from tests.support.data.media_samples import JPEG
from tests.support.servers.telegram_server import BotApiError, Shown
from tests.support.waiting import stays

pytestmark = pytest.mark.fleet

TEA = {"tool": {"name": "ask_user", "input": {"question": "Tea?", "options": ["tea", "coffee"]}}}
FREE = {"tool": {"name": "ask_user", "input": {"question": "Which cup?"}}}


async def _asked(stage: Stage, text: str) -> Shown:
    await soon(lambda: any(text in message.text and message.buttons for message in stage.telegram.messages))
    return next(message for message in stage.telegram.messages if text in message.text)


async def _with_agent(stage: Stage, **spec: object) -> None:
    agent_id = await stage.agent(**spec)
    stage.telegram.says(f"/agent {agent_id}")
    await soon(lambda: stage.telegram.texts() == ["You talk with Chatter now."])


@pytest.mark.long
async def test_a_question_is_answered_by_a_button_whose_choice_stays_visible(served: Stage, script: Script) -> None:
    telegram = served.telegram
    await _with_agent(served, capabilities={"user": {}})
    telegram.says(script(TEA, {"say": "It is coming."}))
    asked = await _asked(served, "Tea?")
    assert [button["text"] for button in asked.buttons] == ["tea", "coffee", "✏️ Write an answer"]
    telegram.presses(asked, "coffee", MALLORY)
    await soon(lambda: "You may not use this bot." in telegram.toasts)
    pressed = asked.buttons
    telegram.presses(asked, "coffee")
    telegram.presses(asked, "tea")
    await soon(lambda: "It is coming." in telegram.texts())
    assert asked.buttons == []
    await soon(lambda: telegram.unconfirmed == [])
    await soon(lambda: asked.text == "Tea?\n\n→ coffee")
    (run,) = await served.runs()
    messages = (await served.nova.threads.messages(run.thread_id)).items
    results = [str(message.content) for message in messages if "tool_result" in str(message.content)]
    assert ["coffee" in result for result in results] == [True]
    asked.buttons = pressed
    telegram.presses(asked, "tea")
    await soon(lambda: asked.buttons == [])


@pytest.mark.long
async def test_a_question_without_options_is_answered_by_a_reply_or_the_next_message(
    served: Stage, script: Script
) -> None:
    telegram = served.telegram
    await _with_agent(served, capabilities={"user": {}})
    telegram.says(script(FREE, {"say": "One."}, FREE, {"say": "Two."}))
    asked = await _asked(served, "Which cup?")
    telegram.presses(asked, "Write")
    await soon(lambda: "Reply to this message with your answer." in telegram.toasts)
    telegram.replies_to(asked, "the blue one")
    await soon(lambda: len([text for text in telegram.texts() if "Which cup?" in text]) == 2)
    telegram.says("the red one")
    # Its buttons come once the run has ended.
    await soon(lambda: [message.text for message in telegram.messages if message.buttons] == ["Two."])
    (run,) = await served.runs()
    assert run.status == "succeeded"


async def test_an_approval_is_given_by_a_button_once(served: Stage, script: Script) -> None:
    telegram = served.telegram
    rule = {"approvals": [{"tool": "memory_save", "decision": "ask"}]}
    await _with_agent(served, capabilities={"memory": {}}, permissions=rule)
    fact = f"tea {uuid.uuid4().hex}"
    telegram.says(script({"tool": {"name": "memory_save", "input": {"content": fact}}}, {"say": "Saved."}))
    asked = await _asked(served, "memory_save")
    telegram.presses(asked, "Approve", BEN)
    telegram.presses(asked, "Deny", ANN)
    await soon(lambda: "Saved." in telegram.texts())
    await soon(lambda: asked.text.endswith("→ ✅ Approve"))
    assert asked.buttons == []
    assert [memory.content for memory in (await served.nova.memories.list(contains=fact)).items] == [fact]
    await soon(lambda: telegram.unconfirmed == [])
    await stays(lambda: not any("refus" in text for text in telegram.texts()), for_s=0.3)


async def test_odd_answers_to_a_question_are_refused_and_stop_nothing(served: Stage, script: Script) -> None:
    telegram = served.telegram
    await _with_agent(served, capabilities={"user": {}})
    telegram.says(script(FREE, {"say": "One."}))
    asked = await _asked(served, "Which cup?")
    telegram.replies_with_photo(asked, JPEG)
    await soon(lambda: any("answered with text" in text for text in telegram.texts()))
    run, wait = asked.buttons[0]["callback_data"].split(":")[1:3]
    telegram.presses_data(asked, f"q:{run}:{wait}:999")
    telegram.presses_data(asked, "x" * 64)
    await soon(lambda: telegram.toasts.count("This button is not known any more.") == 2)
    pressed = asked.buttons
    telegram.replies_to(asked, "the blue one")
    await soon(lambda: "One." in telegram.texts())
    await soon(lambda: asked.buttons == [])
    # As a client shows it that has not seen that the question is closed.
    asked.buttons = pressed
    telegram.replies_to(asked, "the red one")
    await soon(lambda: any("This question is closed" in text for text in telegram.texts()))
    asked.buttons = pressed
    telegram.failures["answerCallbackQuery"] = [BotApiError(400, "Bad Request: query is too old")]
    telegram.presses_data(asked, f"q:{run}:{wait}:0")
    await soon(lambda: asked.buttons == [])
    await soon(lambda: telegram.unconfirmed == [])
    assert len(await served.runs()) == 1


@pytest.mark.long
async def test_a_question_that_is_answered_elsewhere_loses_its_buttons(served: Stage, script: Script) -> None:
    telegram = served.telegram
    await _with_agent(served, capabilities={"user": {}})
    telegram.says(script(TEA, {"sleep_s": 0.5}, {"say": "It is coming."}))
    asked = await _asked(served, "Tea?")
    (run,) = await served.runs()
    await served.nova.runs.answer(run.id, RunAnswer(text="tea"))
    await soon(lambda: asked.buttons == [])
