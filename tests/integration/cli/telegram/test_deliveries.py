"""What agents hand over beside their answers."""

from __future__ import annotations

import json

import pytest

from nova_workers.contracts.http.wire import StatelessRunCreate
from tests.integration.cli.telegram.conftest import ANN, BEN, Script, Stage, soon

pytestmark = pytest.mark.fleet


@pytest.mark.long
async def test_a_file_reaches_its_chat_once_also_after_a_restart(stage: Stage, script: Script) -> None:
    telegram = stage.telegram
    agent_id = await stage.agent(capabilities={"file-send": {}})
    stage.start(NOVA_TELEGRAM__AGENT=agent_id)
    telegram.says("hello")
    await soon(lambda: telegram.texts() == ["You said: hello"])
    report = {"content": "All is well.", "name": "report.txt", "caption": "The report"}
    telegram.says(script({"tool": {"name": "file_send", "input": report}}, {"say": "Done."}))
    await soon(lambda: "Done." in telegram.texts())
    await soon(lambda: any(message.kind == "document" for message in telegram.messages))
    (file,) = [message for message in telegram.messages if message.kind == "document"]
    assert (file.file_name, file.content, file.text) == ("report.txt", b"All is well.", "The report")
    stage.processes[0].kill()
    await stage.restart()
    telegram.says("again")
    await soon(lambda: "You said: again" in telegram.texts())
    assert len([message for message in telegram.messages if message.kind == "document"]) == 1


@pytest.mark.long
async def test_what_no_conversation_started_goes_to_the_named_chat(stage: Stage, script: Script) -> None:
    telegram = stage.telegram
    agent_id = await stage.agent(capabilities={"user": {}})
    stage.start(NOVA_TELEGRAM__DELIVERIES_TO=str(BEN))
    telegram.says("hello", ANN)
    await soon(lambda: telegram.texts(ANN) == ["You said: hello"])
    notify = {"tool": {"name": "notify_user", "input": {"message": "The kettle boils."}}}
    ask = {"tool": {"name": "ask_user", "input": {"question": "Tea?", "options": ["tea", "coffee"]}}}
    message = script(notify, ask, {"say": "Fine."})
    run = await stage.nova.runs.create(StatelessRunCreate(agent_id=agent_id, message=message, queue="background"))
    await soon(lambda: any("Tea?" in shown.text and shown.buttons for shown in telegram.messages))
    (asked,) = [shown for shown in telegram.messages if "Tea?" in shown.text]
    assert (asked.chat, "Tea?" in asked.text) == (BEN, True)
    telegram.presses(asked, "coffee", BEN)

    async def has_ended() -> bool:
        return (await stage.nova.runs.get(run.id)).status == "succeeded"

    await soon(has_ended)
    await soon(lambda: "The kettle boils." in telegram.texts(BEN))
    assert telegram.texts(ANN) == ["You said: hello"]
    assert "coffee" in json.dumps([item.content for item in (await stage.nova.threads.messages(run.thread_id)).items])
