"""The channel is killed at each of its calls: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from tests.integration.cli.telegram.conftest import Script, Stage, soon
from tests.requirements import proves
from tests.support.processes.fleet import free_port
from tests.support.servers.telegram_server import Shown

pytestmark = pytest.mark.fleet

SUBMIT, ANSWER = "POST /v1/threads/{id}/runs", "POST /v1/runs/{id}/answers"


@proves("channel.crash")
async def test_a_channel_that_is_killed_at_any_call_of_a_message_answers_it_once(stage: Stage) -> None:
    telegram = stage.telegram
    windows = [
        ("POST /v1/threads", "after"),
        (SUBMIT, "after"),
        ("PUT /v1/leases/{id}", "after"),
        ("sendChatAction", "before"),
        ("sendChatAction", "after"),
        ("getUpdates", "before"),
        ("sendMessage", "before"),
        ("sendMessage", "after"),
        ("editMessageText", "before"),
        ("editMessageText", "after"),
    ]
    stage.start()
    wanted: list[str] = []
    for number, (call, side) in enumerate(windows):
        await soon(lambda: stage.processes[-1].log.read_text().count("telegram.serving") == 1)
        stage.kills(call, side=side)
        wanted.extend(f"You said: {number} {word}" for word in ("one", "two"))
        telegram.says(f"{number} one")
        if call != "sendMessage":
            # Else the kill could also fall between the sending of the other message and its record.
            await soon(lambda: stage.processes[-1].has_ended)
        telegram.says(f"{number} two")
        await stage.restart()
        await soon(lambda: sorted(telegram.whole_texts()) == sorted(wanted))
        await soon(lambda: telegram.unconfirmed == [])
    assert len(await stage.runs()) == len(wanted)
    # The first words of messages that were sent and not recorded.
    left = len(telegram.texts()) - len(telegram.whole_texts())
    assert left <= sum(call == "sendMessage" for call, _ in windows)


@proves("channel.crash")
@pytest.mark.long
async def test_an_answer_that_a_killed_channel_had_begun_is_finished_in_its_message(
    stage: Stage, script: Script
) -> None:
    telegram = stage.telegram
    first = stage.start()
    telegram.says(
        script({"say": "Begun, and long enough for a phone to announce it, "}, {"sleep_s": 3}, {"say": "and ended."})
    )
    await soon(lambda: "Begun" in "".join(telegram.texts()))
    first.kill()
    await stage.restart()
    await soon(lambda: telegram.texts() == ["Begun, and long enough for a phone to announce it, and ended."])
    assert telegram.unconfirmed == []
    assert len(await stage.runs()) == 1


@proves("channel.crash")
async def test_files_cross_a_channel_that_is_killed_over_them_once(stage: Stage, script: Script) -> None:
    telegram = stage.telegram
    stage.env["NOVA_TELEGRAM__AGENT"] = await stage.agent(capabilities={"file-send": {}})
    stage.start()
    for number, (call, side) in enumerate([("getFile", "after"), ("download", "before"), (SUBMIT, "after")]):
        stage.kills(call, side=side)
        telegram.sends("document", b"a note", caption=f"note {number}", mime_type="text/plain", file_name="a.txt")
        await stage.restart()
        await soon(lambda: telegram.texts().count(f"You said: note {number}") == 1)  # noqa: B023 - awaited here
    blocks = [[block["type"] for block in run.message] for run in await stage.runs()]
    assert blocks == [["text", "document"]] * 3

    def sent() -> list[Shown]:
        return [message for message in telegram.messages if message.kind == "document"]

    for number, (call, side) in enumerate(
        [("GET /v1/files/{id}/content", "after"), ("editMessageMedia", "before"), ("editMessageMedia", "after")]
    ):
        stage.kills(call, side=side)
        file = {"content": f"Report {number}", "name": f"{number}.txt", "caption": "The report"}
        telegram.says(script({"tool": {"name": "file_send", "input": file}}, {"say": f"Done {number}."}))
        await stage.restart()
        await soon(lambda: len(sent()) == number + 1 and f"Done {number}." in telegram.texts())  # noqa: B023
    await soon(lambda: telegram.texts() == telegram.whole_texts())
    assert [(file.file_name, file.content, file.text) for file in sent()] == [
        (f"{number}.txt", f"Report {number}".encode(), "The report") for number in range(3)
    ]


@proves("channel.crash")
async def test_an_answer_to_a_question_counts_once_when_the_channel_is_killed_over_it(
    stage: Stage, script: Script
) -> None:
    telegram = stage.telegram
    permissions = {"approvals": [{"tool": "memory_save", "decision": "ask"}]}
    stage.env["NOVA_TELEGRAM__AGENT"] = await stage.agent(
        capabilities={"memory": {}, "user": {}}, permissions=permissions
    )
    # Answers have no buttons then: those below are of questions.
    stage.env["NOVA_TELEGRAM__FEEDBACK"] = "false"
    stage.start()

    async def asked() -> Shown:
        await soon(lambda: any(message.buttons for message in telegram.messages))
        (message,) = [message for message in telegram.messages if message.buttons]
        return message

    windows = [(ANSWER, "after"), ("answerCallbackQuery", "before"), ("answerCallbackQuery", "after")]
    for number, (call, side) in enumerate(windows):
        save = {"tool": {"name": "memory_save", "input": {"content": f"Fact {number}"}}}
        telegram.says(script(save, {"say": f"Saved {number}."}))
        approval = await asked()
        stage.kills(call, side=side)
        telegram.presses(approval, "Approve")
        await stage.restart()
        await soon(lambda: telegram.texts().count(f"Saved {number}.") == 1)  # noqa: B023 - awaited here
        await soon(lambda: approval.buttons == [] and telegram.unconfirmed == [])  # noqa: B023
    facts = [memory.content for memory in (await stage.nova.memories.list()).items]
    assert sorted(facts) == ["Fact 0", "Fact 1", "Fact 2"]
    for number, call in enumerate(["PATCH /v1/threads/{id}", ANSWER]):
        ask = {"tool": {"name": "ask_user", "input": {"question": f"Which cup, {number}?"}}}
        telegram.says(script(ask, {"say": f"Here it is, {number}."}))
        question = await asked()
        stage.kills(call)
        telegram.replies_to(question, "the blue one")
        await stage.restart()
        await soon(lambda: telegram.texts().count(f"Here it is, {number}.") == 1)  # noqa: B023 - awaited here
        await soon(lambda: question.buttons == [] and telegram.unconfirmed == [])  # noqa: B023
    runs = await stage.runs()
    assert len(runs) == len(windows) + 2
    said = [str(item.content) for item in (await stage.nova.threads.messages(runs[0].thread_id, limit=100)).items]
    assert sum("the blue one" in content for content in said) == 2
    assert not [text for text in telegram.texts() if "is closed" in text]


@proves("channel.crash")
async def test_an_update_of_a_webhook_has_its_effect_once_when_the_channel_is_killed_over_it(stage: Stage) -> None:
    telegram, port = stage.telegram, free_port()
    stage.env |= {
        "NOVA_TELEGRAM__WEBHOOK_URL": "https://bots.example.com",
        "NOVA_TELEGRAM__WEBHOOK_PORT": str(port),
    }
    stage.start()
    url = f"http://127.0.0.1:{port}/telegram"

    async def send(update: object) -> bool:
        """Send an update as Telegram does, and return whether it was confirmed."""
        assert telegram.webhook is not None
        headers = {"X-Telegram-Bot-Api-Secret-Token": telegram.webhook["secret_token"]}
        async with httpx2.AsyncClient(timeout=60) as client:
            try:
                return (await client.post(url, headers=headers, json=update)).status_code == 200
            except httpx2.HTTPError:
                return False

    await soon(lambda: telegram.webhook is not None)
    update: object = None
    for number, (call, was_confirmed) in enumerate([(SUBMIT, False), ("sendChatAction", False), ("sendMessage", True)]):
        telegram.says(f"hello {number}")
        update = telegram.last_update()
        await soon(lambda: stage.processes[-1].log.read_text().count("telegram.serving") == 1)
        stage.kills(call, side="before")

        async def is_taken(update: object = update) -> bool:
            return await send(update) or stage.processes[-1].has_ended

        await soon(is_taken)
        await stage.restart()
        if not was_confirmed:
            # Telegram sends again what was not confirmed, and nothing else.
            await soon(lambda update=update: send(update))
        await soon(lambda: telegram.texts().count(f"You said: hello {number}") == 1)  # noqa: B023 - awaited here
    assert len(await stage.runs()) == 3
    assert await asyncio.gather(*(send(update) for _ in range(2))) == [True, True]
    assert len(await stage.runs()) == 3
    assert telegram.whole_texts() == [f"You said: hello {number}" for number in range(3)]
