"""A stream of the LangGraph door over the death of its API process: the SDK itself resumes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langgraph_sdk import get_client

from nova_workers.base.config import Settings
from tests.requirements import proves
from tests.support.processes.fleet import Fleet, fleet_env

pytestmark = [pytest.mark.long, pytest.mark.fleet]

WORDS = " ".join(f"word{number}" for number in range(120))
SCRIPT = {"script": [{"say": WORDS, "tokens_per_s": 30}]}


@proves("doors.langgraph-streams")
async def test_the_sdk_goes_on_where_it_was_when_the_api_is_killed_in_mid_stream(settings: Settings) -> None:
    env = {**fleet_env(settings), "NOVA_DOORS": '["langgraph"]'}
    said: Any = {"messages": [{"role": "user", "content": json.dumps(SCRIPT)}]}
    names: list[str] = []
    text, values = "", None
    async with Fleet(env) as fleet, get_client(url=f"{fleet.api_url}/langgraph", api_key=fleet.api_key) as sdk:
        thread_id = (await sdk.threads.create())["thread_id"]
        modes: Any = ["messages-tuple", "values"]
        async for part in sdk.runs.stream(thread_id, "nova", input=said, stream_mode=modes):
            data: Any = part.data
            names.append(part.event)
            match part.event, data:
                case "messages", [{"type": "remove"}, _]:
                    text = ""
                case "messages", [{"type": "AIMessageChunk", "content": piece}, _]:
                    text += piece
                case "values", _:
                    values = data
                case _:
                    pass
            if names.count("messages") == 5 and fleet.api is not None and part.event == "messages":
                fleet.api.kill()
                await fleet.start_api()
        assert await sdk.runs.list(thread_id, status="success")
    assert text == WORDS
    assert values is not None
    assert [message["content"] for message in values["messages"]][1:] == [WORDS]
    assert (names.count("metadata"), names[-1]) == (1, "end")
