"""Conversations in Telegram: answers by edits, long ones, tools, commands, strangers."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.contracts.default_agents import ORDER_AGENT
from tests.integration.cli.telegram.conftest import ANN, BEN, MALLORY, Script, Stage, soon
from tests.requirements import proves
from tests.support.servers.telegram_server import BOT_ID, BotApiError
from tests.support.waiting import stays

pytestmark = pytest.mark.fleet

FIRST = "A sentence that a phone may announce now. "

_COPY_AGENT = """
INSERT INTO agents (tenant_id, id, version, spec)
SELECT tenant_id, :copy_id, version, spec FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id
"""


async def test_a_message_is_answered_in_its_chat_and_confirmed(served: Stage) -> None:
    telegram = served.telegram
    update_id = telegram.says("hello", ANN)
    telegram.says("from another chat", BEN)
    await soon(lambda: telegram.texts(ANN) == ["You said: hello"])
    await soon(lambda: telegram.texts(BEN) == ["You said: from another chat"])
    await soon(lambda: telegram.unconfirmed == [])
    (run,) = await served.runs()
    assert run.metadata == {
        "channel": "telegram",
        "to": str(ANN),
        "event_id": f"{BOT_ID}:{update_id}",
        "sender": str(ANN),
    }
    assert telegram.commands == ["new", "agents", "model", "status", "usage", "stop", "reset", "help"]
    answer = next(message for message in telegram.messages if message.chat == ANN)
    for label, marked, score in (("👍", ["👍 ✓", "👎"], 1.0), ("👎", ["👍", "👎 ✓"], -1.0)):
        telegram.presses(answer, label)
        await soon(lambda marked=marked: [button["text"] for button in answer.buttons] == marked)
        [given] = (await served.nova.feedback.of_run(run.id)).items
        assert (given.score, given.source, given.author) == (score, "user", f"telegram: {ANN}")
    await soon(lambda: telegram.unconfirmed == [])
    assert telegram.texts(ANN) == ["You said: hello"]


async def test_an_answer_grows_by_edits_of_one_message_with_its_tools(served: Stage, script: Script) -> None:
    telegram = served.telegram
    agent_id = await served.agent(capabilities={"memory": {}})
    telegram.says(f"/agent {agent_id}")
    await soon(lambda: telegram.texts() == ["You talk with Chatter now."])
    save = {"tool": {"name": "memory_save", "input": {"content": "tea"}}}
    telegram.says(script({"say": FIRST}, {"sleep_s": 1.2}, save, {"sleep_s": 1.2}, {"say": "**Second** part."}))
    await soon(lambda: telegram.texts()[1:] == ["Second part."])
    shown = [call["text"] for call in telegram.named("editMessageText")]
    assert any(FIRST.strip() in text for text in shown)
    assert any("memory_save" in text for text in shown)
    assert telegram.messages[1].html == "<b>Second</b> part."


async def test_an_answer_whose_message_a_person_deletes_comes_in_one_new_message(served: Stage, script: Script) -> None:
    telegram = served.telegram
    telegram.says(script({"say": FIRST}, {"sleep_s": 1.2}, {"say": "second "}, {"sleep_s": 1.2}, {"say": "third."}))
    await soon(lambda: telegram.texts() == [FIRST.strip()])
    telegram.deletes(telegram.messages[0])
    await soon(lambda: telegram.texts()[-1:] == [f"{FIRST}second third."])
    assert len(telegram.texts()) == 1
    assert len(telegram.named("sendMessage")) == 2


async def test_an_answer_in_a_group_that_becomes_a_supergroup_is_finished_there(served: Stage, script: Script) -> None:
    telegram = served.telegram
    telegram.says(script({"say": FIRST}, {"sleep_s": 1.5}, {"say": "second."}), ANN, chat=-5)
    await soon(lambda: telegram.texts(-5) == [FIRST.strip()])
    telegram.moved[-5] = -1005
    await soon(lambda: telegram.texts(-1005) == [f"{FIRST}second."])


async def test_a_deleted_agent_refuses_its_messages_and_stops_no_other_conversation(
    served: Stage, script: Script
) -> None:
    telegram = served.telegram
    agent_id = await served.agent()
    telegram.says(f"/agent {agent_id}", BEN)
    await soon(lambda: telegram.texts(BEN) == ["You talk with Chatter now."])
    telegram.says("hello", BEN)
    await soon(lambda: telegram.texts(BEN)[-1] == "You said: hello")
    await served.nova.agents.delete(agent_id)
    telegram.says("/new", BEN)
    await soon(lambda: f"{agent_id!r}" in telegram.texts(BEN)[-1])
    telegram.says("hello", ANN)
    await soon(lambda: telegram.texts(ANN) == ["You said: hello"])
    telegram.says(script({"say": FIRST}, {"sleep_s": 60}, {"say": "never"}), ANN)
    await soon(lambda: telegram.texts(ANN)[-1] == FIRST.strip())
    telegram.says("/new", ANN)
    # It writes on in this chat.
    telegram.says("/stop", ANN)
    await soon(lambda: any("canceled" in text for text in telegram.texts(ANN)))


@pytest.mark.long
async def test_a_long_answer_is_split_between_its_blocks(served: Stage, script: Script) -> None:
    telegram = served.telegram
    paragraphs = [f"Paragraph {number}. " + "word " * 150 for number in range(20)]
    telegram.says(script({"say": "\n\n".join(paragraphs)}))
    await soon(lambda: telegram.texts() and "Paragraph 19" in telegram.texts()[-1])
    texts = telegram.texts()
    assert len(texts) > 3
    assert all(text.startswith("Paragraph") for text in texts)
    assert [f"Paragraph {number}." in "".join(texts) for number in range(20)] == [True] * 20


@pytest.mark.long
async def test_what_telegram_cannot_format_arrives_as_plain_text(served: Stage) -> None:
    telegram = served.telegram

    async def refuse_html(_: str, params: dict[str, Any]) -> None:
        if params.get("parse_mode") == "HTML":
            raise BotApiError(400, "Bad Request: can't parse entities: odd")

    telegram.before = refuse_html
    telegram.says("a **b** <c>")
    await soon(lambda: telegram.texts() == ["You said: a **b** <c>"])


@pytest.mark.long
async def test_a_refused_rate_is_waited_for_as_long_as_telegram_asks(served: Stage) -> None:
    telegram = served.telegram
    telegram.failures["getUpdates"] = [BotApiError(409, "Conflict: terminated by other getUpdates request")]
    telegram.failures["sendMessage"] = [BotApiError(429, "Too Many Requests: retry after 1", retry_after=1)]
    telegram.says("hello")
    await soon(lambda: telegram.texts() == ["You said: hello"])
    assert len(telegram.named("sendMessage")) == 2


@proves("security.telegram")
async def test_strangers_are_refused_once_with_their_id_and_leave_nothing(served: Stage) -> None:
    telegram = served.telegram
    for _ in range(3):
        telegram.says("let me in", MALLORY)
    telegram.sends("photo", b"picture", MALLORY)
    telegram.says("in a group", MALLORY, chat=-100)
    telegram.says("hello", ANN)
    await soon(lambda: telegram.texts(ANN) == ["You said: hello"])
    (refusal,) = telegram.texts(MALLORY)
    assert str(MALLORY) in refusal
    assert telegram.texts(-100) == []
    assert telegram.named("getFile") == []
    assert await served.runs(str(MALLORY)) == []


@proves("security.telegram")
async def test_a_stranger_is_permitted_by_a_code_that_an_operator_confirms(served: Stage) -> None:
    telegram, nova = served.telegram, served.nova
    telegram.says("let me in", MALLORY)
    await soon(lambda: "Give this code" in "".join(telegram.texts(MALLORY)))
    code = telegram.texts(MALLORY)[0].split()[-1]
    (asking,) = (await nova.pairings.list()).items
    assert (asking.channel, asking.sender, asking.name) == ("telegram", str(MALLORY), f"Person {MALLORY}")
    assert asking.paired_at is None
    confirmed = await nova.pairings.confirm(code.lower())
    assert await nova.pairings.confirm(code) == confirmed
    assert confirmed.paired_at is not None

    async def is_answered() -> bool:
        telegram.says("hello", MALLORY)
        return "You said: hello" in telegram.texts(MALLORY)

    await soon(is_answered)
    telegram.says("in a group", MALLORY, chat=-100)
    await soon(lambda: telegram.texts(-100) == ["You said: in a group"])
    assert await served.runs(str(MALLORY)) != []


@pytest.mark.long
async def test_new_begins_a_conversation_that_knows_nothing_of_the_former(served: Stage) -> None:
    telegram = served.telegram
    telegram.says("one")
    await soon(lambda: telegram.texts() == ["You said: one"])
    telegram.says("/new")
    telegram.says("two")
    await soon(lambda: telegram.texts()[-1] == "You said: two")
    (run,) = await served.runs()
    assert run.message == [{"type": "text", "text": "two"}]


@pytest.mark.long
async def test_agents_are_chosen_by_buttons(served: Stage) -> None:
    telegram = served.telegram
    agent_id = await served.agent()
    await served.execute(_COPY_AGENT, agent_id=agent_id, copy_id=ORDER_AGENT)
    telegram.says("/agents@nova_test_bot")
    await soon(lambda: telegram.messages and telegram.messages[0].buttons)
    # Without the reserved agent of work orders, which talks with no person.
    labels = sorted(button["text"] for button in telegram.messages[0].buttons)
    assert labels == ["Agent Builder", "Chatter", "Nova"]
    telegram.presses(telegram.messages[0], "Chatter")
    await soon(lambda: telegram.texts()[-1] == "You talk with Chatter now.")
    telegram.says("hello")
    await soon(lambda: telegram.texts()[-1] == "You said: hello")
    (run,) = await served.runs()
    assert run.agent_id == agent_id
    telegram.says("/agents@another_bot")
    telegram.says("/agent not-there")
    await soon(lambda: "no agent 'not-there'" in telegram.texts()[-1])


async def test_commands_show_what_happens_and_choose_a_model(served: Stage, script: Script) -> None:
    telegram = served.telegram
    telegram.says("/frobnicate")
    await soon(
        lambda: (
            telegram.texts()[-1:]
            and telegram.texts()[-1].startswith("There is no command /frobnicate.\n\nWrite a message")
        )
    )
    telegram.says("/frobnicate", chat=-5)
    telegram.says("/status")
    await soon(lambda: telegram.texts()[-1] == "You talk with Nova.\nNothing runs at the moment.")
    telegram.says("/model large-model")
    await soon(lambda: telegram.texts()[-1] == "Your next messages use the model large-model.")
    telegram.says(script({"say": FIRST}, {"sleep_s": 60}, {"say": "never"}))
    await soon(lambda: FIRST.strip() in telegram.texts())
    telegram.says("behind it")
    telegram.says("/status")
    await soon(lambda: "Behind it: 1 message." in telegram.texts()[-1])
    assert "It works on an answer for" in telegram.texts()[-1]
    assert "Your messages use the model large-model." in telegram.texts()[-1]
    models = [run.model for run in await served.runs()]
    assert models == ["large-model", "large-model"]
    telegram.says("/reset")
    await soon(lambda: "You begin again with Nova." in telegram.texts())
    await soon(lambda: "This answer was canceled." in "\n".join(telegram.texts()))
    telegram.says("hello")
    await soon(lambda: "You said: hello" in telegram.texts())
    (run,) = await served.runs()
    assert run.model is None
    telegram.says("/usage")
    await soon(lambda: telegram.texts()[-1].startswith("This conversation: 1 message, "))
    assert telegram.texts(-5) == []


async def test_a_phone_announces_the_first_words_of_an_answer_and_not_what_its_calls_show(
    served: Stage, script: Script
) -> None:
    telegram = served.telegram
    agent_id = await served.agent(capabilities={"memory": {}})
    telegram.says(f"/agent {agent_id}")
    await soon(lambda: telegram.texts() == ["You talk with Chatter now."])
    save = {"tool": {"name": "memory_save", "input": {"content": "tea"}}}
    telegram.says(script(save, {"sleep_s": 1.5}, save, {"sleep_s": 1.2}, {"say": "**Both** are saved."}))
    await soon(lambda: telegram.texts()[1:] == ["Both are saved."])
    sent = telegram.named("sendMessage")[1:]
    announced = [call["text"] for call in sent if call.get("disable_notification") != "true"]
    assert announced == ["Both are saved.…"]
    assert all("memory_save" in call["text"] for call in sent if call["text"] not in announced)


async def test_a_reply_to_an_earlier_message_quotes_it(served: Stage) -> None:
    telegram = served.telegram
    telegram.says("first")
    await soon(lambda: telegram.texts() == ["You said: first"])
    telegram.replies_to(telegram.messages[0], "what do you mean?")
    await soon(lambda: len(telegram.whole_texts()) == 2)
    run, _ = await served.runs()
    assert run.message == [{"type": "text", "text": "> You said: first\n\nwhat do you mean?"}]


async def test_a_failure_is_described_in_a_persons_words(served: Stage, script: Script) -> None:
    telegram = served.telegram
    telegram.says(
        script({"error": {"message": "401 invalid x-api-key at 10.0.0.7", "kind": "auth_failure", "retryable": False}})
    )
    await soon(lambda: telegram.texts() and "refuses the fleet's key" in telegram.texts()[-1])
    (run,) = await served.runs()
    await soon(lambda: telegram.texts()[-1].endswith(f"({run.id})"))
    assert "10.0.0.7" not in telegram.texts()[-1]


@pytest.mark.long
async def test_stop_ends_what_runs(served: Stage, script: Script) -> None:
    telegram = served.telegram
    telegram.says(script({"say": FIRST}, {"sleep_s": 60}, {"say": "never"}))
    await soon(lambda: FIRST.strip() in "".join(telegram.texts()))
    telegram.says("/stop")
    await soon(lambda: any("canceled" in text for text in telegram.texts()))
    await soon(lambda: "Stopping." in telegram.texts())
    telegram.says("/stop")
    await soon(lambda: telegram.texts()[-1] == "Nothing runs in this conversation.")


@pytest.mark.long
@proves("security.telegram")
async def test_the_bot_of_one_agent_talks_for_that_agent_only(stage: Stage) -> None:
    agent_id = await stage.agent()
    own = f'{{"{agent_id}": {{"token": "{stage.env.pop("NOVA_TELEGRAM__TOKEN")}"}}}}'
    stage.start(NOVA_TELEGRAM__BOTS=own)
    telegram = stage.telegram
    telegram.says("hello")
    await soon(lambda: telegram.texts() == ["You said: hello"])
    (run,) = await stage.runs(channel=f"telegram-{agent_id}")
    assert run.agent_id == agent_id
    telegram.says("/agent nova")
    await soon(lambda: telegram.texts()[-1] == "You talk with Chatter here.")


# `tests/integration/cli/test_channels.py` shows it with processes that start faster.
@pytest.mark.long
async def test_two_processes_have_one_poller_and_the_other_takes_over(stage: Stage) -> None:
    telegram = stage.telegram
    stage.env["NOVA_TELEGRAM__LEASE_TTL_S"] = "6"
    first, second = stage.start_by_command(), stage.start()
    telegram.says("one")
    await soon(lambda: telegram.texts() == ["You said: one"])
    await soon(lambda: stage.logs().count("channel.standby") == 1)
    holder = first if "telegram.serving" in first.log.read_text() else second
    holder.kill()
    telegram.says("two")
    await soon(lambda: telegram.texts() == ["You said: one", "You said: two"])
    assert "Conflict" not in stage.logs()
    await stays(lambda: len(telegram.messages) == 2, for_s=0.5)
