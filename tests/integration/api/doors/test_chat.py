"""The OpenAI door: chats go on in their threads, and `openai`'s clients read what they are given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar
from unittest import mock

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletion

from nova_workers.base.errors import Unavailable
from nova_workers.contracts import events as live
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.waits import AskApproval, AskUser, CallClientTool
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors.chat_client import ChatDoor, chunks_of, run_of
from tests.integration.api.doors.test_contract import thread_of
from tests.integration.api.manual_worker import ManualWorker, Turn
from tests.requirements import proves
from tests.support.waiting import until

T = TypeVar("T")

PATH = "/openai/v1/chat/completions"
DOOR = ChatDoor()
HELLO: Any = {"role": "user", "content": "hello"}
TOOL: Any = {"type": "function", "function": {"name": "ask", "parameters": {"type": "object"}}}


@pytest.fixture
async def client(api: Api) -> AsyncGenerator[openai.AsyncOpenAI]:
    """The SDK's client."""
    async with openai.AsyncOpenAI(base_url=f"{api.url}/openai/v1", api_key=api.tenant.key, max_retries=0) as made:
        yield made


def said(role: str, content: Any, **fields: Any) -> Any:
    """Return a message of a chat."""
    return {"role": role, "content": content, **fields}


async def queued(api: Api) -> str:
    """Return the run that is queued, once there is one."""

    async def find() -> Any:
        return await api.fetchval(
            "SELECT id FROM runs WHERE tenant_id = :tenant_id AND status = 'queued'", tenant_id=api.tenant.id
        )

    return await until(find)


async def answered(
    api: Api, worker: ManualWorker, request: Awaitable[T], act: Callable[[Turn], Awaitable[object]]
) -> T:
    """Make a request that waits, and act as the worker of its run meanwhile."""
    waiting = asyncio.ensure_future(request)
    run_id = await queued(api)
    await act(await worker.claim(await thread_of(api, run_id)))
    async with asyncio.timeout(60):
        return await waiting


def saying(text: str) -> Callable[[Turn], Awaitable[object]]:
    """Return what a worker does that answers with a text."""

    async def act(turn: Turn) -> None:
        await turn.emit(live.Token(text=text[:2]), live.Token(text=text[2:]))
        await turn.finish(text)

    return act


async def suspended(turn: Turn, text: str, *waits: NewWait) -> None:
    """Let a run wait, and say so."""
    await turn.suspend(text, *waits)
    end = live.StreamEnd(run_id=turn.claim.run_id, final=False, status="waiting")
    await turn.emit(*(live.Waiting(kind=wait.request.kind) for wait in waits), end)


async def complete(api: Api, worker: ManualWorker, messages: list[Any], text: str = "Hi!", **fields: Any) -> str:
    """Send a chat whose last message is answered, and return its run."""
    body = {"model": "nova", "messages": messages, **fields.pop("body", {})}
    answer = await answered(api, worker, api.http.post(PATH, json=body, **fields), saying(text))
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == text
    return run_of(answer.json())


async def history_of(api: Api, thread_id: str) -> list[tuple[str, Any]]:
    """Return what was said in a thread."""
    items = (await api.http.get(f"/v1/threads/{thread_id}/messages")).json()["items"]
    return [(item["role"], [block.get("text", block) for block in item["content"]]) for item in items]


async def test_the_sdk_reads_completions_and_streams_of_one_chat_in_one_thread(
    api: Api, worker: ManualWorker, client: openai.AsyncOpenAI
) -> None:
    first: ChatCompletion = await answered(
        api,
        worker,
        client.chat.completions.create(
            model="nova",
            messages=[said("system", "Be brief."), HELLO],
            temperature=0.5,
            max_completion_tokens=50,
            store=True,
            seed=1,
            top_p=0.9,
            user="ann",
        ),
        saying("Hi!"),
    )
    choice = first.choices[0]
    assert (choice.message.content, choice.finish_reason, first.model) == ("Hi!", "stop", "nova")
    assert first.usage is not None
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (20, 7)
    run = (await api.http.get(f"/v1/runs/{run_of(first.model_dump())}")).json()
    assert (run["instructions"], run["temperature"], run["max_output_tokens"]) == ("Be brief.", 0.5, 50)
    assert not (await api.http.get(f"/v1/threads/{run['thread_id']}")).json()["ephemeral"]

    async def streamed() -> list[Any]:
        # The time changes the instructions from message to message, and front ends trim texts.
        stream = await client.chat.completions.create(
            model="nova",
            messages=[said("system", "Now."), HELLO, said("assistant", " Hi!\n"), said("user", "And?")],
            stream=True,
            stream_options={"include_usage": True},
            user="ann",
        )
        return [chunk async for chunk in stream]

    chunks = await answered(api, worker, streamed(), saying("Good."))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert ("".join(texts), chunks[-2].choices[0].finish_reason) == ("Good.", "stop")
    assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 27)
    assert await thread_of(api, run_of(chunks[0].model_dump())) == run["thread_id"]
    again = await client.chat.completions.retrieve(chunks[0].id)
    assert (again.id, again.choices[0].message.content) == (chunks[0].id, "Good.")


async def test_the_synchronous_sdk_reads_models_and_a_completion(api: Api, worker: ManualWorker) -> None:
    def ask() -> tuple[list[str], str | None]:
        with openai.OpenAI(base_url=f"{api.url}/openai/v1", api_key=api.tenant.key, max_retries=0) as client:
            models = [model.id for model in client.models.list()]
            with pytest.raises(openai.NotFoundError, match="no model 'none'"):
                client.models.retrieve("none")
            assert client.models.retrieve("nova").created > 1_700_000_000
            answer = client.chat.completions.create(model="nova", messages=[HELLO])
        return models, answer.choices[0].message.content

    models, text = await answered(api, worker, asyncio.to_thread(ask), saying("Hi!"))
    assert "nova" in models
    assert models == sorted(models)
    assert text == "Hi!"


@proves("doors.chat-thread")
async def test_an_edited_or_regenerated_chat_goes_on_in_a_fork_and_an_unknown_one_is_imported(
    api: Api, worker: ManualWorker
) -> None:
    first = await complete(api, worker, [HELLO])
    chat = [HELLO, said("assistant", "Hi!")]
    second = await complete(api, worker, [*chat, said("user", "two")], "2")
    again = await complete(api, worker, [*chat, said("user", "two")], "II")
    edited = await complete(api, worker, [*chat, said("user", "three")], "3")
    threads = [await thread_of(api, run) for run in (first, second, again, edited)]
    assert threads[0] == threads[1]
    assert len(set(threads)) == 3
    for thread_id in threads[2:]:
        view = (await api.http.get(f"/v1/threads/{thread_id}")).json()
        assert (view["forked_from_thread_id"], view["ephemeral"]) == (threads[0], True)
    # Each branch goes on where it is.
    for answer, thread_id in (("2", threads[0]), ("II", threads[2])):
        messages = [*chat, said("user", "two"), said("assistant", answer), said("user", "on")]
        assert await thread_of(api, await complete(api, worker, messages)) == thread_id
    foreign = [said("user", "one"), said("assistant", "An answer that was edited."), said("user", "on")]
    imported = await thread_of(api, await complete(api, worker, foreign, "ok"))
    assert await history_of(api, imported) == [
        ("user", ["one"]),
        ("assistant", ["An answer that was edited."]),
        ("user", ["on"]),
        ("assistant", ["ok"]),
    ]
    # From then on it has its thread.
    more = [*foreign, said("assistant", "ok"), said("user", "more")]
    assert await thread_of(api, await complete(api, worker, more)) == imported


@proves("doors.chat-thread")
async def test_chats_that_begin_alike_share_no_thread_whether_they_go_on_at_once_or_not(
    api: Api, worker: ManualWorker
) -> None:
    runs = [await complete(api, worker, [HELLO]) for _ in range(2)]
    threads = {await thread_of(api, run) for run in runs}
    assert len(threads) == 2
    body = {"model": "nova", "messages": [HELLO, said("assistant", "Hi!"), said("user", "on")], "stream": True}
    request = DOOR.message()
    sent = [type(request)("POST", PATH, body) for _ in range(4)]
    answers = await asyncio.gather(*(DOOR.post(api.http, each) for each in sent))
    going_on = [await thread_of(api, await DOOR.run_id_of(api.http, answer)) for answer in answers]
    assert len(set(going_on)) == 4


@proves("doors.chat-thread")
async def test_another_key_person_agent_or_conversation_never_finds_a_chat(api: Api, worker: ManualWorker) -> None:
    thread_id = await thread_of(api, await complete(api, worker, [HELLO]))
    chat = [HELLO, said("assistant", "Hi!"), said("user", "on")]
    made = await api.http.post("/v1/keys", json={"name": "other", "scopes": ["runs"]})
    others: list[dict[str, Any]] = [
        {"headers": {"Authorization": f"Bearer {made.json()['key']}"}},
        {"body": {"user": "bob"}},
        {"headers": {"X-OpenWebUI-Chat-Id": "chat 2"}},
        {"headers": {"X-Conversation-Id": "chat 3"}},
        {},
    ]
    found = [await thread_of(api, await complete(api, worker, chat, **other)) for other in others]
    assert len(set(found)) == len(found)
    assert found[-1] == thread_id


@proves("doors.chat-repeated")
async def test_a_repeated_request_with_an_id_gets_the_same_answer_and_thread(api: Api, worker: ManualWorker) -> None:
    headers = {"Idempotency-Key": "once", "x-stainless-retry-count": "1"}
    chat = [said("user", "one"), said("assistant", "elsewhere"), said("user", "on")]
    run_id = await complete(api, worker, chat, headers=headers)
    for _ in range(2):
        again = await api.http.post(PATH, json={"model": "nova", "messages": chat}, headers=headers)
        assert run_of(again.json()) == run_id
    assert (await api.count("runs"), await api.count("threads")) == (1, 1)
    more = [*chat, said("assistant", "Hi!"), said("user", "more")]
    assert await thread_of(api, await complete(api, worker, more)) == await thread_of(api, run_id)


@proves("doors.chat-results")
async def test_calls_of_the_clients_functions_end_a_completion_and_their_results_go_on_with_the_run(
    api: Api, worker: ManualWorker, client: openai.AsyncOpenAI
) -> None:
    async def calling(turn: Turn) -> None:
        waits = [NewWait(f"toolu_{at}", CallClientTool(tool_name="ask", params={})) for at in (1, 2)]
        await suspended(turn, "Looking.", *waits)

    first: ChatCompletion = await answered(
        api,
        worker,
        client.chat.completions.create(model="nova", messages=[HELLO], tools=[TOOL]),
        calling,
    )
    choice = first.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Looking.")
    calls = choice.message.tool_calls or []
    assert [call.model_dump()["function"] for call in calls] == [{"name": "ask", "arguments": "{}"}] * 2
    chat = [HELLO, choice.message.model_dump(exclude_none=True)]
    partial: list[Any] = [*chat, said("tool", "rain", tool_call_id=calls[0].id)]
    refused = await api.http.post(PATH, json={"model": "nova", "messages": partial})
    assert DOOR.refusal_of(refused) == ("invalid_input", "messages.1.tool_calls", 422)
    results: list[Any] = [*partial, said("tool", [{"type": "text", "text": "sun"}], tool_call_id=calls[1].id)]
    run_id = run_of(first.model_dump())

    async def streamed() -> list[Any]:
        stream = await client.chat.completions.create(model="nova", messages=results, tools=[TOOL], stream=True)
        return [chunk async for chunk in stream]

    async def finishing(turn: Turn) -> None:
        turn.step, turn.seq = 1, 3
        await turn.finish("It rains.")

    chunks = await answered(api, worker, streamed(), finishing)
    assert run_of(chunks[0].model_dump()) == run_id
    assert chunks[0].id == f"{first.id}_1"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "It rains."
    # A repeated request gets the same answer.
    again = await api.http.post(PATH, json={"model": "nova", "messages": results})
    assert again.json()["choices"][0]["message"]["content"] == "It rains."
    more = [*results, said("assistant", "It rains."), said("user", "thanks")]
    assert await thread_of(api, await complete(api, worker, more)) == await thread_of(api, run_id)


async def test_a_stream_has_the_calls(api: Api, worker: ManualWorker) -> None:
    async def calling(turn: Turn) -> None:
        await suspended(turn, "", NewWait("toolu_1", CallClientTool(tool_name="ask", params={})))

    body = {"model": "nova", "messages": [HELLO], "tools": [TOOL], "stream": True}
    chunks = chunks_of((await answered(api, worker, api.http.post(PATH, json=body), calling)).text)
    deltas = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert [(call["index"], call["function"]) for call in deltas] == [(0, {"name": "ask", "arguments": "{}"})]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    # Results for which no run waits, as the run is gone or never was, are imported with their chat.
    calls = ["toolu_1", "call_01ARZ3NDEKTSV4RRFFQ69G5FAV_toolu_1", f"{deltas[0]['id']}0"]
    for at, call_id in enumerate(calls):
        call = {"id": call_id, "type": "function", "function": {"name": "ask", "arguments": "{}"}}
        chat = [HELLO, said("assistant", None, tool_calls=[call]), said("tool", "rain", tool_call_id=call_id)]
        run_id = await complete(api, worker, chat, body={"tools": [TOOL]})
        history = await history_of(api, await thread_of(api, run_id))
        assert [role for role, _ in history] == ["user", "assistant", "user", "user", "assistant"]
        assert history[2][1][0]["content"] == [{"type": "text", "text": "rain"}]
        assert await api.count("threads") == 2 + at
        more = [*chat, said("assistant", "Hi!"), said("user", "more")]
        assert await thread_of(api, await complete(api, worker, more)) == await thread_of(api, run_id)


@proves("doors.chat-results")
@pytest.mark.parametrize("reply", ["yes\nred", "no"])
async def test_one_reply_answers_all_that_a_step_asked(api: Api, worker: ManualWorker, reply: str) -> None:
    async def asking(turn: Turn) -> None:
        asks = (AskApproval(tool_name="Bash", params={}, reason="It writes."), AskUser(question="Which?"))
        await suspended(turn, "", *(NewWait(f"toolu_{at}", wait) for at, wait in enumerate(asks)))

    asked = await answered(api, worker, api.http.post(PATH, json={"model": "nova", "messages": [HELLO]}), asking)
    text = asked.json()["choices"][0]["message"]["content"]
    assert text == "May I call Bash with {}? It writes. Answer yes or no.\n\nWhich?"
    body = {"model": "nova", "messages": [HELLO, said("assistant", text), said("user", reply)], "stream": True}
    answer = await answered(api, worker, api.http.post(PATH, json=body), finishing)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks_of(answer.text)) == "Done."
    answers = await api.fetchval(
        "SELECT jsonb_agg(answer ORDER BY id) FROM run_waits WHERE run_id = :run_id", run_id=run_of(asked.json())
    )
    both = [{"approve": True}, {"text": "red"}] if reply != "no" else [{"approve": False, "text": "no"}, {"text": "no"}]
    assert [{key: each[key] for key in each if key != "by"} for each in answers] == both


@proves("doors.chat-results")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_question_beside_calls_is_asked_when_they_have_their_results(
    api: Api, worker: ManualWorker, *, stream: bool
) -> None:
    async def asking(turn: Turn) -> None:
        call = NewWait("toolu_0", CallClientTool(tool_name="look", params={}))
        await suspended(turn, "", call, NewWait("toolu_1", AskUser(question="Which?")))

    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    body: dict[str, Any] = {"model": "nova", "messages": [HELLO], "tools": tools}
    asked = (await answered(api, worker, api.http.post(PATH, json=body), asking)).json()
    message = asked["choices"][0]["message"]
    assert (message["content"], len(message["tool_calls"])) == (None, 1)
    body["stream"] = stream
    body["messages"] = [HELLO, message, said("tool", "rain", tool_call_id=message["tool_calls"][0]["id"])]
    async with asyncio.timeout(60):
        assert text_of(await api.http.post(PATH, json=body)) == "Which?"
    body["messages"] += [said("assistant", "Which?"), said("user", "red")]
    assert text_of(await answered(api, worker, api.http.post(PATH, json=body), finishing)) == "Done."
    assert await api.count("runs") == 1


async def finishing(turn: Turn) -> None:
    """Finish the run of a completion that asked something in its first step."""
    turn.step, turn.seq = 1, 3
    await turn.finish("Done.")


def text_of(answer: httpx2.Response) -> str:
    """Return the text of a completion."""
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json()["choices"][0]["message"]["content"]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks_of(answer.text))


@proves("doors.chat-results")
@pytest.mark.parametrize(
    ("wait", "shown", "reply"),
    [
        (AskUser(question="Which?", options=("A", "B")), "Which?\n- A\n- B", "A"),
        (AskApproval(tool_name="Bash", params={"command": "ls"}, reason="It writes."), None, "Yes."),
        (AskApproval(tool_name="Bash", params={"command": "ls"}, reason="It writes."), None, "no, look elsewhere"),
    ],
)
async def test_a_question_of_the_agent_is_its_answer_and_the_next_message_answers_it(
    api: Api, worker: ManualWorker, wait: AskUser | AskApproval, shown: str | None, reply: str
) -> None:
    async def asking(turn: Turn) -> None:
        await suspended(turn, "", NewWait("toolu_1", wait))

    asked = await answered(api, worker, api.http.post(PATH, json={"model": "nova", "messages": [HELLO]}), asking)
    choice = asked.json()["choices"][0]
    question = shown or 'May I call Bash with {"command":"ls"}? It writes. Answer yes or no.'
    assert (choice["message"]["content"], choice["finish_reason"]) == (question, "stop")

    async def finishing(turn: Turn) -> None:
        turn.step, turn.seq = 1, 3
        await turn.finish("Done.")

    body = {"model": "nova", "messages": [HELLO, said("assistant", question), said("user", reply)]}
    answer = await answered(api, worker, api.http.post(PATH, json=body), finishing)
    assert run_of(answer.json()) == run_of(asked.json())
    assert answer.json()["choices"][0]["message"]["content"] == "Done."
    more = [*body["messages"], said("assistant", "Done."), said("user", "on")]
    thread_id = await thread_of(api, run_of(asked.json()))
    assert await thread_of(api, await complete(api, worker, more)) == thread_id


async def test_text_that_comes_again_is_sent_once_and_other_text_ends_the_stream_with_an_error(
    api: Api, worker: ManualWorker
) -> None:
    async def like_before(turn: Turn) -> None:
        await turn.emit(live.Token(text="It is "), live.Restart(), live.Token(text="It is 5"))
        await turn.finish("It is 5.")

    async def otherwise(turn: Turn) -> None:
        await turn.emit(live.Token(text="It is "), live.Restart(), live.Token(text="I do not know"))
        await turn.finish("I do not know.")

    body = {"model": "nova", "messages": [HELLO], "stream": True}
    chunks = chunks_of((await answered(api, worker, api.http.post(PATH, json=body), like_before)).text)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "It is 5."
    text = (await answered(api, worker, api.http.post(PATH, json=body), otherwise)).text
    chunks = chunks_of(text)
    assert chunks[-1]["error"]["code"] == "answer_withdrawn"
    assert text.endswith("data: [DONE]\n\n")
    whole = (await DOOR.read(api.http, run_of(chunks[0]))).json()
    assert whole["choices"][0]["message"]["content"] == "I do not know."


async def test_a_failed_run_is_an_error_and_a_canceled_one_is_cut(api: Api, worker: ManualWorker) -> None:
    async def failing(turn: Turn) -> None:
        await turn.finish("", "failed", error=EngineError("model_error", "The model is away.", retryable=False))

    for stream in (False, True):
        body = {"model": "nova", "messages": [HELLO], "stream": stream}
        answer = await answered(api, worker, api.http.post(PATH, json=body), failing)
        error = chunks_of(answer.text)[-1]["error"] if stream else answer.json()["error"]
        assert (error["message"], error["type"]) == ("The model is away.", "server_error")
        if not stream:
            assert (answer.status_code, answer.headers["x-should-retry"]) == (500, "false")

    async def canceling(turn: Turn) -> None:
        await api.http.post(f"/v1/runs/{turn.claim.run_id}/cancel")
        await turn.finish("Half an", "canceled")

    answer = await answered(api, worker, api.http.post(PATH, json={"model": "nova", "messages": [HELLO]}), canceling)
    choice = answer.json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "Half an")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"stop": ["\n"]}, "stop"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"functions": [{"name": "ask"}]}, "functions"),
        ({"temperature": 1.5}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "function": {"name": "no good"}}]}, "tools.0.name"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"messages": []}, "messages"),
        ({"messages": [said("system", "x")]}, "messages.0"),
        ({"messages": [HELLO, said("assistant", "Hi!")]}, "messages.1"),
        ({"messages": [said("robot", "x")]}, "messages.0.role"),
        ({"messages": [said("user", "  ")]}, "messages.0.content"),
        ({"messages": [said("user", [{"type": "input_audio", "input_audio": {}}])]}, "messages.0.content.0"),
        ({"messages": [said("tool", "x")]}, "messages.0.tool_call_id"),
        ({"messages": [HELLO, said("assistant", "", tool_calls=[{"id": "x"}]), HELLO]}, "messages.1.tool_calls.0"),
    ],
)
async def test_a_field_that_cannot_be_used_is_named(api: Api, fields: dict[str, Any], param: str) -> None:
    answer = await api.http.post(PATH, json={"model": "nova", "messages": [HELLO], **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, param), answer.text
    assert await api.count("runs") == 0


async def test_a_fleet_without_an_embedding_model_refuses_texts(api: Api, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="no embedding model") as refused:
        await client.embeddings.create(model="text-embedding-3-small", input="hello")
    assert (refused.value.status_code, refused.value.code) == (501, "embeddings_off")


async def test_front_ends_chats_and_their_requests_for_titles_are_served(api: Api, worker: ManualWorker) -> None:
    # As Open WebUI and LibreChat (by LangChain's client) send them.
    webui = {"X-OpenWebUI-User-Id": "u1", "X-OpenWebUI-Chat-Id": "c1", "X-OpenWebUI-User-Role": "admin"}
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    cached = [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]
    chat = await answered(
        api,
        worker,
        api.http.post(PATH, json={"model": "nova", "messages": [said("user", cached)], **usage}, headers=webui),
        saying("Hi!"),
    )
    assert chunks_of(chat.text)[-1]["usage"]["total_tokens"] == 27
    title = "### Task:\nGenerate a concise title of the chat.\n<chat>USER: hello</chat>"
    titled = await complete(api, worker, [said("user", title)], '{"title": "Greeting"}', headers=webui)
    assert (await api.http.get("/v1/threads")).json()["items"] == []
    more = [said("system", "It is noon."), HELLO, said("assistant", "Hi!"), said("user", cached)]
    first = run_of(chunks_of(chat.text)[0])
    thread_id = await thread_of(api, await complete(api, worker, more, headers=webui))
    assert thread_id == await thread_of(api, first)
    assert thread_id != await thread_of(api, titled)

    langchain: dict[str, Any] = {
        **usage,
        "temperature": 1,
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "user": "66a1",
        "n": 1,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
    }
    body = {"model": "nova", "messages": [said("system", "x"), said("user", [{"type": "text", "text": "hello"}])]}
    answer = await answered(api, worker, api.http.post(PATH, json={**body, **langchain}), saying("Hi!"))
    assert chunks_of(answer.text)[-2]["choices"][0]["finish_reason"] == "stop"


async def test_a_chat_whose_thread_was_deleted_is_imported(api: Api, worker: ManualWorker) -> None:
    thread_id = await thread_of(api, await complete(api, worker, [HELLO]))
    assert (await api.http.delete(f"/v1/threads/{thread_id}")).is_success
    new = await thread_of(api, await complete(api, worker, [HELLO, said("assistant", "Hi!"), said("user", "on")], "ok"))
    assert new != thread_id
    assert [text for _, [text] in await history_of(api, new)] == ["hello", "Hi!", "on", "ok"]


async def test_an_answer_whose_place_cannot_be_noted_is_sent_and_its_chat_imported(
    api: Api, worker: ManualWorker
) -> None:
    async def failing(*_: object) -> None:
        raise Unavailable("The database does not answer.")

    with mock.patch("api.doors.service.places.note_place", failing):
        first = await complete(api, worker, [HELLO])
        body = {"model": "nova", "messages": [HELLO], "stream": True}
        chunks = chunks_of((await answered(api, worker, api.http.post(PATH, json=body), saying("Hi!"))).text)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    on = await complete(api, worker, [HELLO, said("assistant", "Hi!"), said("user", "on")])
    assert len({await thread_of(api, run) for run in (first, run_of(chunks[0]), on)}) == 3


async def test_a_reply_that_is_none_of_the_options_is_refused_and_another_is_taken(
    api: Api, worker: ManualWorker
) -> None:
    async def asking(turn: Turn) -> None:
        wait = NewWait("toolu_1", AskUser(question="Which?", options=("A", "B"), only_options=True))
        await suspended(turn, "Well.", wait)

    body = {"model": "nova", "messages": [HELLO], "stream": True}
    chunks = chunks_of((await answered(api, worker, api.http.post(PATH, json=body), asking)).text)
    asked = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert asked == "Well.\n\nWhich?\n- A\n- B"
    chat = [HELLO, said("assistant", asked)]
    refused = await api.http.post(PATH, json={"model": "nova", "messages": [*chat, said("user", "C")]})
    assert DOOR.refusal_of(refused) == ("invalid_input", "messages.2.content", 422)

    async def finishing(turn: Turn) -> None:
        turn.step, turn.seq = 1, 3
        await turn.finish("Done.")

    replied = {"model": "nova", "messages": [*chat, said("user", "B")], "stream": True}
    text = (await answered(api, worker, api.http.post(PATH, json=replied), finishing)).text
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks_of(text)) == "Done."
    # The same reply again gets the same answer, another one is a chat of its own.
    again = await api.http.post(PATH, json={**replied, "stream": False})
    assert (run_of(again.json()), again.json()["choices"][0]["message"]["content"]) == (run_of(chunks[0]), "Done.")
    assert await complete(api, worker, [*chat, said("user", "A")]) != run_of(chunks[0])
