"""OpenAI's SDK, sync and async, against the door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Literal
from unittest import mock

import openai
import orjson
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from nova_workers.base.config import Settings
from nova_workers.contracts import events as live
from nova_workers.contracts.waits import AskApproval, AskUser, CallClientTool
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api, served
from tests.integration.api.doors.every_door import DOORS
from tests.integration.api.doors.openai_shapes import check_events, check_item, check_response
from tests.integration.api.doors.test_contract import thread_of
from tests.integration.api.manual_worker import ManualWorker, Tenant, Turn
from tests.integration.api.shared_servers import SharedServers
from tests.requirements import proves
from tests.support.waiting import until

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}


@pytest.fixture
async def client(api: Api) -> AsyncGenerator[AsyncOpenAI]:
    """The SDK with the tenant's key."""
    async with AsyncOpenAI(base_url=f"{api.url}/openai/v1", api_key=api.tenant.key, max_retries=0) as client:
        yield client


def run_of(response: Response | str) -> str:
    """Return the run of a response."""
    name = response if isinstance(response, str) else response.id
    return f"run_{name.split('_')[1]}"


async def begin(api: Api, worker: ManualWorker, response: Response) -> Turn:
    """Claim the run of a response."""
    return await worker.claim(await thread_of(api, run_of(response)))


async def begun(api: Api, worker: ManualWorker, client: AsyncOpenAI, **fields: Any) -> tuple[Response, Turn]:
    """Create a response in the background, and claim its run."""
    response = await client.responses.create(model="nova", input="hello", background=True, **fields)
    return response, await begin(api, worker, response)


async def first_run(api: Api) -> str:
    """Return the tenant's run, once it has one."""

    async def find() -> str | None:
        return await api.fetchval("SELECT id FROM runs WHERE tenant_id = :id", id=api.tenant.id)

    run_id = await until(find)
    assert run_id is not None
    return run_id


async def ask(turn: Turn, *requests: AskUser | AskApproval | CallClientTool) -> None:
    """Let a run wait for its caller or a person."""
    await turn.suspend("", *(NewWait(f"toolu_{at}", request) for at, request in enumerate(requests)))


async def document(api: Api, response_id: str) -> dict[str, Any]:
    """Return a response as it is on the wire, checked."""
    answer = await api.http.get(f"/openai/v1/responses/{response_id}")
    assert answer.status_code == 200, answer.text
    check_response(answer.json())
    return answer.json()


async def test_the_sync_sdk_creates_reads_lists_continues_and_deletes(api: Api, worker: ManualWorker) -> None:
    with OpenAI(base_url=f"{api.url}/openai/v1", api_key=api.tenant.key, max_retries=0) as client:
        assert "nova" in {model.id for model in client.models.list()}
        creating = asyncio.create_task(
            asyncio.to_thread(
                client.responses.create,
                model="nova",
                input=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "What is a fence?"}],
                metadata={"of": "a test"},
                timeout=60,
            )
        )
        run_id = await first_run(api)
        await worker.play(await thread_of(api, run_id), "A number that grows.")
        response = await creating
        assert (response.status, response.output_text) == ("completed", "A number that grows.")
        assert (response.instructions, response.metadata) == ("Be brief.", {"of": "a test"})
        assert response.usage is not None
        assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 7)

        (item,) = client.responses.input_items.list(response.id, order="asc").data
        assert item.id == f"msg_{run_id.removeprefix('run_')}_in"
        second = client.responses.create(
            model="nova", input="And a lease?", previous_response_id=response.id, background=True
        )
        assert (second.previous_response_id, second.background, second.status) == (response.id, True, "queued")
        assert second.conversation == response.conversation
        with pytest.raises(openai.ConflictError, match="one of several"):
            client.responses.delete(second.id)
        assert client.responses.cancel(second.id).status == "cancelled"
        assert response.conversation is not None
        assert client.conversations.delete(response.conversation.id).deleted
        for name in (response.id, second.id):
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(name)
        alone = client.responses.create(model="nova", input="x", background=True, store=False)
        assert (await document(api, alone.id))["store"] is False
        client.responses.delete(alone.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(alone.id)


async def test_a_stream_has_reasoning_text_and_calls_and_is_what_the_contracts_require(
    api: Api, worker: ManualWorker, client: AsyncOpenAI
) -> None:
    response, turn = await begun(api, worker, client, tools=[WEATHER], tool_choice="required")
    reading = asyncio.create_task(read(client, response.id))
    await turn.emit(live.Reasoning(text="Which"), live.Reasoning(text=" place?"), live.Token(text="Let me"))
    call = CallClientTool(tool_name="get_weather", params={"at": "Rome"})
    await turn.suspend("Let me look.", NewWait("toolu_a", call), NewWait("toolu_b", call))
    events = await reading
    check_events(events)
    kinds = {event["type"] for event in events}
    assert {"response.reasoning_summary_text.delta", "response.output_text.delta"} <= kinds
    last = events[-1]["response"]
    assert last == await document(api, response.id)
    assert (last["status"], last["tool_choice"]) == ("completed", "required")
    assert last["tools"] == [{**WEATHER, "strict": None}]
    assert [item["type"] for item in last["output"]] == ["message", "function_call", "function_call"]
    calls = [item for item in last["output"] if item["type"] == "function_call"]
    outputs: list[Any] = [
        {"type": "function_call_output", "call_id": each["call_id"], "output": "rain"} for each in calls
    ]

    with pytest.raises(openai.UnprocessableEntityError, match="all calls of a response together"):
        await client.responses.create(model="nova", input=outputs[:1], previous_response_id=response.id)
    given: Any = {"model": "nova", "input": outputs, "previous_response_id": response.id, "background": True}
    second = await client.responses.create(**given)
    assert (await client.responses.create(**given)).id == second.id
    assert second.previous_response_id == response.id
    items = await client.responses.input_items.list(second.id, limit=1, order="asc")
    assert (len(items.data), items.has_more) == (1, True)
    assert [item.id async for item in items] == [f"fco_{each['id'].removeprefix('fc_')}" for each in calls]
    turn = await worker.claim(turn.claim.thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("It rains.")
    rest = await read(client, second.id)
    check_events(rest)
    assert rest[-1]["response"]["output"][0]["content"][0]["text"] == "It rains."


@proves("doors.openai-results", "doors.openai-history")
async def test_outputs_with_the_whole_history_find_the_run_that_waits_and_else_begin_a_thread_with_it(
    api: Api, worker: ManualWorker, client: AsyncOpenAI
) -> None:
    response, turn = await begun(api, worker, client, tools=[WEATHER])
    await ask(turn, CallClientTool(tool_name="get_weather", params={}))
    call = (await document(api, response.id))["output"][0]
    history: Any = [
        {"role": "user", "content": "hello"},
        call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"},
    ]
    second = await client.responses.create(model="nova", input=history, background=True)
    assert run_of(second) == run_of(response)
    # Another result than the run was given: the client goes on from an earlier place of its conversation.
    other: Any = [*history[:2], {**history[2], "output": "snow"}]
    third = await client.responses.create(model="nova", input=other, background=True)
    assert run_of(third) != run_of(response)
    assert third.model_dump()["store"] is False
    more: Any = [*history, {"role": "assistant", "content": "It rains."}, {"role": "user", "content": "Thanks"}]
    fourth = await client.responses.create(model="nova", input=more, background=True, store=True)
    thread_id = await thread_of(api, run_of(fourth))
    past = (await api.http.get(f"/v1/threads/{thread_id}/messages")).json()["items"]
    assert [message["role"] for message in past] == ["user", "assistant", "user", "assistant"]
    assert (await api.http.get(f"/v1/runs/{run_of(fourth)}")).json()["message"] == [{"type": "text", "text": "Thanks"}]
    threads = await api.count("threads")
    with pytest.raises(openai.APIStatusError):
        await client.responses.create(model="none", input=more, background=True)
    key = {"Idempotency-Key": "history"}
    made = [
        (await client.responses.create(model="nova", input=more, background=True, extra_headers=key)).id
        for _ in range(2)
    ]
    assert len(set(made)) == 1
    assert await api.count("threads") == threads + 1


async def test_a_history_with_the_items_of_a_conversation_continues_it_and_a_changed_one_does_not(
    api: Api, worker: ManualWorker, client: AsyncOpenAI
) -> None:
    history: Any = [{"role": "user", "content": "one"}]
    runs: list[str] = []
    for text in ("two", "three"):
        response = await client.responses.create(model="nova", input=history, background=True)
        runs.append(run_of(response))
        await worker.play(await thread_of(api, runs[-1]), f"before {text}")
        output = (await document(api, response.id))["output"]
        history = [*history, *output, {"role": "user", "content": text}]
    assert await thread_of(api, runs[0]) == await thread_of(api, runs[1])
    again = await client.responses.create(model="nova", input=history[:3], background=True)
    assert await thread_of(api, run_of(again)) != await thread_of(api, runs[0])
    forks = (await api.http.get("/v1/threads", params={"forked_from": await thread_of(api, runs[0])})).json()["items"]
    assert [thread["id"] for thread in forks] == [await thread_of(api, run_of(again))]
    changed: Any = [{"role": "user", "content": "another"}, *history[1:]]
    other = await client.responses.create(model="nova", input=changed, background=True)
    assert other.previous_response_id is None
    assert other.model_dump()["store"] is False


@proves("doors.openai-questions")
async def test_a_response_ends_with_a_question_and_the_next_message_answers_it(
    api: Api, worker: ManualWorker, client: AsyncOpenAI
) -> None:
    response, turn = await begun(api, worker, client)
    await ask(turn, AskUser(question="Which one?", options=("red", "blue")))
    events = await read(client, response.id)
    check_events(events)
    asked = await client.responses.retrieve(response.id)
    assert (asked.status, asked.output_text) == ("completed", "Which one?\n- red\n- blue")
    with pytest.raises(openai.UnprocessableEntityError):
        await client.responses.create(model="nova", input="x" * 10_001, previous_response_id=response.id)
    given: Any = {"model": "nova", "input": "blue", "previous_response_id": response.id, "background": True}
    answered = await client.responses.create(**given)
    assert (answered.id, answered.status) == (f"{response.id}_1", "in_progress")
    assert (await client.responses.create(**given)).id == answered.id
    (item,) = (await client.responses.input_items.list(answered.id)).data
    check_item(item.model_dump(exclude_none=True))
    turn = await worker.claim(turn.claim.thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("Blue it is.")
    assert (await document(api, answered.id))["output"][0]["content"][0]["text"] == "Blue it is."
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(f"{response.id}_3")


async def test_a_response_ends_with_a_request_for_permission_that_the_next_one_decides(
    api: Api, worker: ManualWorker, client: AsyncOpenAI
) -> None:
    response, turn = await begun(api, worker, client)
    await ask(turn, AskApproval(tool_name="send_mail", params={"to": "all"}, reason="a rule"))
    events = await read(client, response.id)
    check_events(events)
    (request,) = (await client.responses.retrieve(response.id)).output
    assert request.type == "mcp_approval_request"
    assert (request.name, request.arguments) == ("send_mail", '{"to":"all"}')
    decision: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": False}
    for _ in range(2):
        second = await client.responses.create(model="nova", input=[decision], background=True)
        assert second.id == f"{response.id}_1"
    run = (await api.http.get(f"/v1/runs/{run_of(response)}")).json()
    assert run["status"] == "queued"


async def test_the_sdk_parses_an_answer_by_its_schema(api: Api, worker: ManualWorker, client: AsyncOpenAI) -> None:
    class Place(BaseModel):
        name: str

    asking = asyncio.create_task(client.responses.parse(model="nova", input="Where?", text_format=Place, timeout=60))
    run_id = await first_run(api)
    await worker.play(await thread_of(api, run_id), '{"name":"Rome"}')
    response = await asking
    assert response.output_parsed == Place(name="Rome")
    assert response.text is not None
    assert response.text.format is not None
    assert response.text.format.type == "json_schema"


async def test_what_another_tenant_has_cannot_be_told_from_what_is_not_there(
    api: Api, worker: ManualWorker, client: AsyncOpenAI, other_tenant: Tenant
) -> None:
    response, turn = await begun(api, worker, client, tools=[WEATHER])
    approval = AskApproval(tool_name="send_mail", params={}, reason="a rule")
    await ask(turn, CallClientTool(tool_name="get_weather", params={}), approval)
    assert response.conversation is not None
    call, request = (await document(api, response.id))["output"]
    nothing = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    ulid, conversation = response.id.removeprefix("resp_"), response.conversation.id
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "x"}
    decision = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    hello = {"role": "user", "content": "hello"}
    bodies: list[dict[str, Any]] = [
        {"input": [output]},
        {"input": [decision]},
        {"input": [{"type": "item_reference", "id": f"msg_{ulid}_in"}, hello]},
        {"input": "hello", "previous_response_id": response.id},
        {"input": "hello", "conversation": conversation},
    ]
    paths = [
        ("GET", f"/responses/{response.id}"),
        ("GET", f"/responses/{response.id}?stream=true"),
        ("GET", f"/responses/{response.id}/input_items"),
        ("POST", f"/responses/{response.id}/cancel"),
        ("DELETE", f"/responses/{response.id}"),
        ("GET", f"/conversations/{conversation}"),
        ("GET", f"/conversations/{conversation}/items"),
        ("DELETE", f"/conversations/{conversation}"),
    ]
    requests: list[tuple[str, str, Any]] = [
        *(("POST", "/responses", {"model": "nova", **body}) for body in bodies),
        *((method, path, None) for method, path in paths),
    ]
    async with api.client(other_tenant.key) as stranger:
        for method, path, body in requests:
            wire = orjson.dumps(body).decode()
            answers = [
                await stranger.request(method, f"/openai/v1{path}", json=body),
                await stranger.request(
                    method,
                    f"/openai/v1{path}".replace(ulid, nothing).replace(conversation, f"conv_{nothing}"),
                    json=orjson.loads(wire.replace(ulid, nothing).replace(conversation, f"conv_{nothing}")),
                ),
            ]
            assert [answer.status_code for answer in answers] == [404, 404], (method, path, body, answers[0].text)
            errors = [answer.json()["error"] for answer in answers]
            assert errors[0]["code"] == errors[1]["code"]
    assert (await api.http.get(f"/v1/runs/{run_of(response)}")).json()["status"] == "waiting"


async def test_errors_have_the_class_that_the_sdk_gives_their_status(api: Api, client: AsyncOpenAI) -> None:
    async with AsyncOpenAI(base_url=f"{api.url}/openai/v1", api_key="nova_wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.responses.create(model="none", input="x")
    assert unknown.value.code == "not_found"
    response = await client.responses.create(model="nova", input="x", background=True)
    assert response.conversation is not None
    with pytest.raises(openai.UnprocessableEntityError) as other:
        await client.responses.create(model="opus", input="x", conversation=response.conversation.id)
    assert other.value.param == "model"
    with pytest.raises(openai.ConflictError):
        await client.responses.create(model="nova", input="x", previous_response_id=response.id)
    wrong = await api.http.get("/openai/v1/models", headers={"Host": "evil.example"})
    assert (wrong.status_code, set(wrong.json()["error"])) == (421, {"message", "type", "param", "code"})


async def test_a_conversation_is_a_thread(api: Api, worker: ManualWorker, client: AsyncOpenAI) -> None:
    conversation = await client.conversations.create(metadata={"topic": "fences"})
    assert (await client.conversations.retrieve(conversation.id)).metadata == {"topic": "fences"}
    for text in ("one", "two"):
        response = await client.responses.create(
            model="nova", input=text, conversation={"id": conversation.id}, background=True
        )
        await worker.play(await thread_of(api, run_of(response)), f"answer to {text}")
    first = await client.conversations.items.list(conversation.id, order="asc", limit=3)
    said = [part["text"] async for item in first for part in item.model_dump()["content"]]
    assert said == ["one", "answer to one", "two", "answer to two"]
    newest = (await client.conversations.items.list(conversation.id, limit=1)).data[0].model_dump()
    assert newest["content"][0]["text"] == "answer to two"
    with pytest.raises(openai.UnprocessableEntityError):
        await client.conversations.items.list(conversation.id, after="msg_none")


async def test_pages_of_a_long_conversation_have_each_item_once(api: Api, client: AsyncOpenAI) -> None:
    texts = [f"{who} {number}" for number in range(45) for who in ("user", "assistant")]
    past = [{"role": text.split()[0], "content": [{"type": "text", "text": text}]} for text in texts]
    conversation = (await api.thread(messages=past)).replace("thr_", "conv_")
    orders: list[tuple[Literal["asc", "desc"], list[str]]] = [("desc", texts[::-1]), ("asc", texts)]
    for order, expected in orders:
        pages = client.conversations.items.list(conversation, order=order, limit=11)
        said = [part["text"] async for item in pages for part in item.model_dump()["content"]]
        assert said == expected


async def test_a_compacted_conversation_is_sent_in_place_of_itself(
    api: Api, worker: ManualWorker, client: AsyncOpenAI
) -> None:
    said: Any = [{"role": "user", "content": "Launch on Tuesday."}, {"role": "assistant", "content": "Yes."}]
    compacting = asyncio.create_task(client.responses.compact(model="nova", input=said, timeout=60))
    run_id = await first_run(api)
    await worker.play(await thread_of(api, run_id), "They launch on Tuesday.")
    compacted = await compacting
    assert (compacted.object, compacted.output[0].type) == ("response.compaction", "compaction")
    items: Any = [*(item.model_dump(exclude_none=True) for item in compacted.output), said[0]]
    response = await client.responses.create(model="nova", input=items, background=True)
    message = (await api.http.get(f"/v1/runs/{run_of(response)}")).json()["message"]
    assert "They launch on Tuesday." in message[0]["text"]


@proves("doors.openai-resume")
async def test_a_stream_goes_on_at_another_api_where_the_first_ended(
    api: Api, worker: ManualWorker, client: AsyncOpenAI, shared: SharedServers
) -> None:
    settings: Settings = shared.settings.model_copy(update={"doors": tuple({door.door: None for door in DOORS})})
    with mock.patch("api.app.rehearse_messages", mock.AsyncMock()):
        other_url, _ = shared.enter(served(settings))
    response, turn = await begun(api, worker, client)
    await turn.emit(live.Token(text="One, "))
    before: list[dict[str, Any]] = []
    async with asyncio.timeout(60), await client.responses.retrieve(response.id, stream=True) as stream:
        async for event in stream:
            before.append(event.model_dump(exclude_unset=True))
            if event.type == "response.output_text.delta":
                break
    await turn.emit(live.Token(text="two, "))
    await turn.emit(live.Token(text="three."))
    await turn.finish("One, two, three.")
    async with AsyncOpenAI(base_url=f"{other_url}/openai/v1", api_key=api.tenant.key, max_retries=0) as other:
        after = await read(other, response.id, before[-1]["sequence_number"])
    events = [*before, *after]
    check_events(events)
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "One, two, three."
    kinds = [event["type"] for event in events]
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 1
    assert {event["output_index"] for event in events if "output_index" in event} == {0}


async def read(client: AsyncOpenAI, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
    """Return the events of a response, as the SDK gives them."""
    options: dict[str, Any] = {} if after is None else {"starting_after": after}
    async with asyncio.timeout(60), await client.responses.retrieve(response_id, stream=True, **options) as stream:
        return [event.model_dump(exclude_unset=True) async for event in stream]
