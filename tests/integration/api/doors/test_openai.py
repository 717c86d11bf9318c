"""The OpenAI door: responses are runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis

from nova_workers.base.keys import run_events
from nova_workers.contracts import events as live
from nova_workers.contracts.waits import CallClientTool
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors.openai_client import OpenAIDoor
from tests.integration.api.doors.test_contract import thread_of
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.shared_servers import SharedServers

DOOR = OpenAIDoor()


async def events(api: Api, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
    """Return the events of a response."""
    params = {"stream": "true"} if after is None else {"stream": "true", "starting_after": str(after)}
    path = f"/openai/v1/responses/{response_id}"
    async with asyncio.timeout(60), api.http.stream("GET", path, params=params) as response:
        assert response.status_code == 200, await response.aread()
        lines = [line async for line in response.aiter_lines()]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [orjson.loads(each) for each in data[:-1]]


async def test_the_models_are_the_agents(api: Api) -> None:
    listed = (await api.http.get("/openai/v1/models")).json()
    assert listed["object"] == "list"
    assert "nova" in {model["id"] for model in listed["data"]}
    assert (await api.http.get("/openai/v1/models/nova")).json()["id"] == "nova"
    assert (await api.http.get("/openai/v1/models/none")).status_code == 404


async def test_a_stream_has_the_text_in_pieces_and_ends_with_the_whole_response(api: Api, worker: ManualWorker) -> None:
    run_id = DOOR.run_of(await DOOR.send(api.http))
    turn = await worker.claim(await thread_of(api, run_id))
    reading = asyncio.create_task(events(api, DOOR.name_of(run_id)))
    await turn.emit(live.Token(text="Hel"))
    await turn.emit(live.Token(text="lo"))
    await turn.finish("Hello")
    found = await reading
    assert [event["type"] for event in found[:4]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    deltas = [event["delta"] for event in found if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "Hello"
    last = found[-1]
    assert (last["type"], last["response"]["status"]) == ("response.completed", "completed")
    assert last["response"] == (await DOOR.read(api.http, run_id)).json()
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert done == last["response"]["output"]
    numbers = [event["sequence_number"] for event in found]
    assert numbers == sorted(set(numbers))


def pieces(given: list[dict[str, Any]]) -> str:
    """Return the pieces of text that events have."""
    return "".join(event["delta"] for event in given if event["type"] == "response.output_text.delta")


async def test_a_client_that_resumes_after_a_number_misses_nothing_also_once_redis_is_empty(
    api: Api, worker: ManualWorker, shared: SharedServers
) -> None:
    run_id = DOOR.run_of(await DOOR.send(api.http))
    turn = await worker.claim(await thread_of(api, run_id))
    # While the run goes on, its pieces come in other flushes than later.
    following = asyncio.create_task(events(api, DOOR.name_of(run_id)))
    await turn.emit(live.Token(text="Hel"))
    await turn.emit(live.Token(text="lo"))
    await turn.finish("Hello")
    flushed = await following
    for number in [event["sequence_number"] for event in flushed][:-1]:
        rest = await events(api, DOOR.name_of(run_id), after=number)
        had = [event for event in flushed if event["sequence_number"] <= number]
        assert pieces([*had, *rest]) == "Hello", number
    whole = await events(api, DOOR.name_of(run_id))
    numbers = [event["sequence_number"] for event in whole]
    for number in numbers[:-1]:
        rest = await events(api, DOOR.name_of(run_id), after=number)
        had = [event for event in whole if event["sequence_number"] <= number]
        assert pieces([*had, *rest]) == "Hello", number
    for number in numbers[:-1]:
        rest = await events(api, DOOR.name_of(run_id), after=number)
        missed = [event for event in whole if event["sequence_number"] > number]
        assert (without_pieces(rest), pieces(rest)) == (without_pieces(missed), pieces(missed))
    async with Redis.from_url(shared.settings.require_redis_url()) as redis:
        await redis.delete(run_events(run_id))
    for number in numbers[:-1]:
        rest = await events(api, DOOR.name_of(run_id), after=number)
        assert rest[-1] == whole[-1]
        missed = [event for event in whole if event["sequence_number"] > number]
        for kind in ("response.output_text.done", "response.output_item.done"):
            assert [event for event in rest if event["type"] == kind] == [
                event for event in missed if event["type"] == kind
            ]


async def test_a_previous_response_goes_on_in_its_conversation_and_forks_where_it_is_not_the_last(
    api: Api, worker: ManualWorker
) -> None:
    first = DOOR.run_of(await DOOR.send(api.http))
    thread_id = await thread_of(api, first)
    await worker.play(thread_id)
    second = DOOR.run_of(await DOOR.send(api.http, previous_response_id=DOOR.name_of(first), request_id="two"))
    assert await thread_of(api, second) == thread_id
    await worker.play(thread_id)
    third = DOOR.run_of(await DOOR.send(api.http, previous_response_id=DOOR.name_of(first)))
    assert await thread_of(api, third) != thread_id
    again = DOOR.run_of(await DOOR.send(api.http, previous_response_id=DOOR.name_of(first), request_id="two"))
    assert again == second
    conversation = f"conv_{thread_id.removeprefix('thr_')}"
    fourth = DOOR.run_of(await DOOR.send(api.http, conversation=conversation))
    assert await thread_of(api, fourth) == thread_id


def without_pieces(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events without the pieces of text, which may come in one or in several."""
    return [event for event in given if event["type"] != "response.output_text.delta"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "name": "no good"}]}, "tools.0.name"),
        ({"temperature": 7}, "temperature"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input.0"),
        ({"input": [{"role": "assistant", "content": "hi"}]}, "input"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "x"}]}, "input.0.arguments"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"tools": [{"type": "function", "name": "f"}], "tool_choice": "any"}, "tool_choice"),
        ({"model": None}, "model"),
        ({"input": [{"type": "function_call_output", "call_id": "c" * 300, "output": "x"}]}, "input.0.call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "conversation"),
    ],
)
async def test_a_field_that_cannot_be_used_is_named(api: Api, fields: dict[str, Any], param: str) -> None:
    answer = await DOOR.send(api.http, **fields)
    assert answer.status_code == 422, answer.text
    assert DOOR.error_of(answer) == ("invalid_input", param)


async def test_a_stream_that_is_requested_with_the_message_is_of_its_run(api: Api, worker: ManualWorker) -> None:
    body = {"model": "nova", "input": "hello", "stream": True}
    async with asyncio.timeout(60), api.http.stream("POST", "/openai/v1/responses", json=body) as response:
        lines = response.aiter_lines()
        data = [orjson.loads(line.removeprefix("data: ")) async for line in _until_created(lines)]
        run_id = f"run_{data[-1]['response']['id'].removeprefix('resp_')}"
        await worker.play(await thread_of(api, run_id), "Hello")
        rest = [line async for line in lines]
    assert "event: response.completed" in rest
    assert rest[-2] == "data: [DONE]"


async def test_a_call_of_the_clients_function_ends_the_response_and_its_result_begins_the_next(
    api: Api, worker: ManualWorker
) -> None:
    tools = [{"type": "function", "name": "ask", "parameters": {"type": "object"}}]
    run_id = DOOR.run_of(await DOOR.send(api.http, tools=tools))
    turn = await worker.claim(await thread_of(api, run_id))
    await turn.suspend("Looking.", NewWait("toolu_1", CallClientTool(tool_name="ask", params={})))
    found = await events(api, DOOR.name_of(run_id))
    output = found[-1]["response"]["output"]
    assert (found[-1]["type"], [item["type"] for item in output]) == (
        "response.completed",
        ["message", "function_call"],
    )
    call_id = f"call_{run_id.removeprefix('run_')}_toolu_1"
    assert (output[1]["call_id"], output[1]["name"], output[1]["arguments"]) == (call_id, "ask", "{}")
    given = {
        "previous_response_id": DOOR.name_of(run_id),
        "input": [{"type": "function_call_output", "call_id": call_id, "output": "rain"}],
        "background": True,
    }
    for _ in range(2):
        answer = await api.http.post("/openai/v1/responses", json=given)
        assert answer.status_code == 200, answer.text
        assert answer.json()["id"] == f"{DOOR.name_of(run_id)}_1"
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"
    items = (await api.http.get(f"/openai/v1/responses/{DOOR.name_of(run_id)}_1/input_items")).json()["data"]
    assert [(item["type"], item["call_id"]) for item in items] == [("function_call_output", call_id)]


async def _until_created(lines: AsyncIterator[str]) -> AsyncGenerator[str]:
    """Yield the data of events up to the first."""
    async for line in lines:
        if line.startswith("data: "):
            yield line
            return
