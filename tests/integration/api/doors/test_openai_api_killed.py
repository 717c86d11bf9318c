"""A stream of the OpenAI door over the death of its API process."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from nova_workers.base.config import Settings
from tests.integration.api.doors.openai_shapes import check_events
from tests.support.processes.fleet import Fleet, fleet_env

pytestmark = [pytest.mark.long, pytest.mark.fleet]

WORDS = " ".join(f"word{number}" for number in range(120))
SCRIPT = {"script": [{"think": "I should count."}, {"say": WORDS, "tokens_per_s": 30}]}


async def test_a_client_whose_api_is_killed_in_mid_stream_resumes_without_gap_or_double(settings: Settings) -> None:
    env = {**fleet_env(settings), "NOVA_DOORS": '["openai"]'}
    events: list[dict[str, Any]] = []
    async with Fleet(env) as fleet, AsyncOpenAI(base_url=f"{fleet.api_url}/openai/v1", api_key=fleet.api_key) as client:
        stream: Any = await client.responses.create(model="nova", input=json.dumps(SCRIPT), stream=True)
        with pytest.raises((openai.APIError, httpx2.TransportError)):
            await read_and_kill(stream, fleet, events)
        response_id = events[0]["response"]["id"]
        await fleet.start_api()
        after = events[-1]["sequence_number"]
        rest: Any = await client.responses.retrieve(response_id, stream=True, starting_after=after)
        resumed = [event.model_dump(exclude_unset=True) async for event in rest]
        whole = (await client.responses.retrieve(response_id)).output_text
    assert resumed
    events += resumed
    check_events(events)
    assert (
        "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == whole == WORDS
    )
    kinds = [event["type"] for event in events]
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 2
    assert kinds[-1] == "response.completed"


async def read_and_kill(stream: Any, fleet: Fleet, events: list[dict[str, Any]]) -> None:
    """Read events, and kill the API after some text."""
    async for event in stream:
        events.append(event.model_dump(exclude_unset=True))
        if fleet.api is not None and sum(each["type"].endswith("text.delta") for each in events) == 5:
            fleet.api.kill()
