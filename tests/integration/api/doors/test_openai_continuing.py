"""The OpenAI door: what a request continues, once, also where it is repeated or gives only a part of what was asked."""

from __future__ import annotations

from typing import Any

from nova_workers.contracts.waits import AskApproval, AskUser, CallClientTool
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors.openai_client import OpenAIDoor
from tests.integration.api.doors.test_contract import thread_of
from tests.integration.api.manual_worker import ManualWorker, Turn
from tests.requirements import proves

DOOR = OpenAIDoor()
PATH = "/openai/v1/responses"
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}


async def asking(
    api: Api, worker: ManualWorker, *requests: AskUser | AskApproval | CallClientTool, **fields: Any
) -> tuple[str, Turn]:
    """Create a response whose run asks for something, and return the run with its turn."""
    run_id = DOOR.run_of(await DOOR.send(api.http, tools=[TOOL], **fields))
    turn = await worker.claim(await thread_of(api, run_id))
    await turn.suspend("", *(NewWait(f"toolu_{at}", request) for at, request in enumerate(requests)))
    return run_id, turn


async def goes_on(worker: ManualWorker, turn: Turn, step: int = 1) -> Turn:
    """Claim a run that was given what it asked for."""
    turn = await worker.claim(turn.claim.thread_id)
    turn.step, turn.seq = step, 1 + 2 * step
    return turn


@proves("doors.openai-questions")
async def test_a_message_that_is_repeated_with_its_key_does_not_answer_what_its_own_run_asks(
    api: Api, worker: ManualWorker
) -> None:
    conversation = (await api.http.post("/openai/v1/conversations", json={})).json()["id"]
    sent = {"request_id": "once", "conversation": conversation}
    first = DOOR.run_of(await DOOR.send(api.http, "hello", **sent))
    turn = await worker.claim(await thread_of(api, first))
    await turn.suspend("", NewWait("toolu_0", AskUser(question="Which?")))
    again = await DOOR.send(api.http, "hello", **sent)
    assert DOOR.run_of(again) == first
    run = (await api.http.get(f"/v1/runs/{first}")).json()
    assert (run["status"], await api.count("runs")) == ("waiting", 1)


@proves("doors.openai-questions")
async def test_an_answer_that_is_repeated_with_its_key_does_not_answer_the_next_question(
    api: Api, worker: ManualWorker
) -> None:
    conversation = (await api.http.post("/openai/v1/conversations", json={})).json()["id"]
    run_id, turn = await asking(api, worker, AskUser(question="Which?"), conversation=conversation)
    reply = {"request_id": "answer", "conversation": conversation}
    answered = (await DOOR.send(api.http, "red", **reply)).json()
    assert answered["id"] == f"{DOOR.name_of(run_id)}_1"
    turn = await goes_on(worker, turn)
    await turn.suspend("", NewWait("toolu_next", AskUser(question="How many?")))
    assert (await DOOR.send(api.http, "red", **reply)).json()["id"] == answered["id"]
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "waiting"
    other = await DOOR.send(api.http, "blue", **reply)
    assert (other.status_code, DOOR.error_of(other)[0]) == (409, "idempotency_mismatch")


async def test_a_client_that_names_its_thread_in_each_request_sends_a_message_with_each(api: Api) -> None:
    # Codex sends one value for all requests of a thread.
    runs = []
    for text in ("one", "two"):
        request = DOOR.message(text).plus(**{"X-Client-Request-Id": "thread-1"})
        runs.append(DOOR.run_of(await request.send(api.http)))
    assert len(set(runs)) == 2


def request_id(run_id: str, wait_id: str) -> str:
    """Return the id of a request for permission."""
    return f"mcpr_{run_id.removeprefix('run_')}_{wait_id.removeprefix('wait_')}"


async def output_of(api: Api, run_id: str, suffix: str = "") -> list[dict[str, Any]]:
    """Return the output of a response."""
    answer = await api.http.get(f"{PATH}/{DOOR.name_of(run_id)}{suffix}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "completed"
    return answer.json()["output"]


def decision(request: dict[str, Any], *, approve: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a decision about a call."""
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve, **fields}


def result(call: dict[str, Any], output: str = "rain") -> dict[str, Any]:
    """Return the result of a call."""
    return {"type": "function_call_output", "call_id": call["call_id"], "output": output}


APPROVAL = AskApproval(tool_name="send_mail", params={}, reason="a rule")
CALL = CallClientTool(tool_name="look", params={})


@proves("doors.openai-results")
async def test_results_and_decisions_are_given_together_and_what_is_left_open_is_asked_again(
    api: Api, worker: ManualWorker
) -> None:
    run_id, turn = await asking(api, worker, CALL, APPROVAL, APPROVAL)
    call, *requests = await output_of(api, run_id)
    first = [result(call), decision(requests[0])]
    given = await DOOR.send(api.http, input=first)
    assert given.json()["id"] == f"{DOOR.name_of(run_id)}_1"
    run = (await api.http.get(f"/v1/runs/{run_id}")).json()
    assert [request_id(run_id, wait["id"]) for wait in run["waits"]] == [requests[1]["id"]]
    assert await output_of(api, run_id, "_1") == [requests[1]]
    streamed = await api.http.get(f"{PATH}/{DOOR.name_of(run_id)}_1", params={"stream": "true"})
    assert "event: response.completed" in streamed.text
    # The first one is given again, as by a client that keeps its conversation.
    rest = await DOOR.send(api.http, input=[*first, decision(requests[1], approve=False, reason="no")])
    assert rest.json()["id"] == f"{DOOR.name_of(run_id)}_1"
    await (await goes_on(worker, turn)).finish("Done.")
    assert (await output_of(api, run_id, "_1"))[0]["content"][0]["text"] == "Done."


@proves("doors.openai-results")
async def test_what_conflicts_with_a_decision_is_refused_whole(api: Api, worker: ManualWorker) -> None:
    run_id, _ = await asking(api, worker, CALL, APPROVAL, APPROVAL)
    other_id, _ = await asking(api, worker, APPROVAL)
    call, *requests = await output_of(api, run_id)
    (foreign,) = await output_of(api, other_id)
    conversation = f"conv_{(await thread_of(api, other_id)).removeprefix('thr_')}"
    hello, first = {"role": "user", "content": "hello"}, [decision(requests[0])]
    refused: list[tuple[dict[str, Any], str, int]] = [
        ({"input": [decision(requests[0]), hello]}, "input", 422),
        ({"input": [decision(requests[0]), decision(foreign)]}, "input", 422),
        ({"input": [decision(requests[0]), result({"call_id": "call_elsewhere"})]}, "input", 422),
        ({"input": [decision(requests[0]), decision(requests[0], approve=False)]}, "input.1", 422),
        ({"input": [result(call), result(call, "snow")]}, "input", 422),
        (
            {"input": [decision(requests[0])], "previous_response_id": DOOR.name_of(other_id)},
            "previous_response_id",
            422,
        ),
        ({"input": first, "conversation": conversation}, "conversation", 422),
        ({"input": first, "model": "opus"}, "model", 422),
        (
            {"input": [decision(requests[0]), decision({"id": f"{requests[0]['id']}0"})]},
            "input.1.approval_request_id",
            404,
        ),
        ({"input": [decision(requests[0]), decision(requests[1], reason="x" * 10_001)]}, "input.1.reason", 422),
    ]
    for fields, param, status in refused:
        body = {"model": "nova", "background": True, **fields}
        answer = await api.http.post(PATH, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), (fields, answer.text)
    run = (await api.http.get(f"/v1/runs/{run_id}")).json()
    assert (len(run["waits"]), run["status"], await api.count("runs")) == (3, "waiting", 2)
    await DOOR.send(api.http, input=[result(call), decision(requests[0])])
    for changed in ([decision(requests[0], approve=False), decision(requests[1])], [result(call, "snow")]):
        answer = await DOOR.send(api.http, input=changed)
        assert DOOR.refusal_of(answer).is_like(409, "illegal_transition"), answer.text
    run = (await api.http.get(f"/v1/runs/{run_id}")).json()
    assert [request_id(run_id, wait["id"]) for wait in run["waits"]] == [requests[1]["id"]]


async def test_a_history_with_requests_and_decisions_goes_on_where_it_ends(api: Api, worker: ManualWorker) -> None:
    run_id, turn = await asking(api, worker, APPROVAL)
    (request,) = await output_of(api, run_id)
    history = [{"role": "user", "content": "hello"}, request, decision(request)]
    assert (await DOOR.send(api.http, input=history)).json()["id"] == f"{DOOR.name_of(run_id)}_1"
    await (await goes_on(worker, turn)).finish("Sent.")
    history += [*await output_of(api, run_id, "_1"), {"role": "user", "content": "Thanks"}]
    again = DOOR.run_of(await DOOR.send(api.http, input=history))
    assert again != run_id
    assert await thread_of(api, again) == await thread_of(api, run_id)
    short = [*history[:3], {"role": "user", "content": "And now?"}]
    assert DOOR.run_of(await DOOR.send(api.http, input=short)) not in {run_id, again}


async def test_one_message_answers_all_questions_of_a_response_or_each_with_its_line(
    api: Api, worker: ManualWorker
) -> None:
    for text, answers in (("red\nfour", ["red", "four"]), ("whatever", ["whatever", "whatever"])):
        run_id, turn = await asking(api, worker, AskUser(question="Which?"), AskUser(question="How many?"))
        assert len(await output_of(api, run_id)) == 2
        given = {"previous_response_id": DOOR.name_of(run_id)}
        for _ in range(2):
            assert (await DOOR.send(api.http, text, **given)).json()["id"] == f"{DOOR.name_of(run_id)}_1"
        items = (await api.http.get(f"{PATH}/{DOOR.name_of(run_id)}_1/input_items?order=asc")).json()["data"]
        assert [item["content"][0]["text"] for item in items] == answers
        await (await goes_on(worker, turn)).finish("Done.")


async def test_a_question_and_its_answer_can_be_named(api: Api, worker: ManualWorker) -> None:
    run_id, turn = await asking(api, worker, AskUser(question="Which?"))
    (question,) = await output_of(api, run_id)
    await DOOR.send(api.http, "red", previous_response_id=DOOR.name_of(run_id))
    await (await goes_on(worker, turn)).finish("Done.")
    (said,) = (await api.http.get(f"{PATH}/{DOOR.name_of(run_id)}_1/input_items")).json()["data"]
    names = [{"type": "item_reference", "id": item["id"]} for item in (question, said)]
    answer = await DOOR.send(api.http, input=[*names, {"role": "user", "content": "Why?"}])
    assert answer.status_code == 200, answer.text
    again = DOOR.run_of(answer)
    past = (await api.http.get(f"/v1/threads/{await thread_of(api, again)}/messages")).json()["items"]
    assert past[-1]["content"][0]["text"] == "Which?"
    message = (await api.http.get(f"/v1/runs/{again}")).json()["message"]
    assert [block["text"] for block in message] == ["red", "Why?"]


async def test_an_input_that_names_items_of_too_many_responses_is_refused(api: Api) -> None:
    names = [{"type": "item_reference", "id": f"msg_{at:026d}_in"} for at in range(101)]
    answer = await DOOR.send(api.http, input=[*names, {"role": "user", "content": "Why?"}])
    assert DOOR.refusal_of(answer).is_like(422, "invalid_input")


async def test_a_response_that_is_not_kept_is_named_with_what_to_do(api: Api, worker: ManualWorker) -> None:
    run_id = DOOR.run_of(await DOOR.send(api.http, "hello", store=False))
    thread_id = await thread_of(api, run_id)
    await worker.play(thread_id, "Hello.")
    unknown = "resp_01ARZ3NDEKTSV4RRFFQ69G5FAV"
    # As the purge of ephemeral threads does after a day.
    assert (await api.http.delete(f"/v1/threads/{thread_id}")).is_success
    for previous in (unknown, DOOR.name_of(run_id)):
        body = {"model": "nova", "input": "And now?", "previous_response_id": previous}
        refused = await api.http.post(PATH, json=body)
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (404, "previous_response_id"), refused.text
        assert previous in error["message"]
        assert "Send the conversation" in error["message"]
