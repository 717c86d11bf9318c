"""The client's event stream on an unreliable network."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response
from typer.testing import CliRunner

from nova_workers.base.errors import Forbidden, NotFound, ThreadBusy, Unavailable
from nova_workers.cli.records.watch import app as watch
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from nova_workers.contracts.bodies import Problem
from nova_workers.contracts.events import Event, EventCursor, StreamEnd, StreamStart, Token
from nova_workers.contracts.http.wire import RunCreate
from tests.support.servers.api_stub import CHANGES, ApiStub, all_frames, api_stub, run_view, says, streams

EVENTS = "/v1/runs/run_1/events"
PATIENT = Retry(attempts=4, base_s=0.001, max_s=0.002)

START = StreamStart(run_id="run_1", thread_id="thr_1", attempt=1, agent_id="nova")
END = StreamEnd(run_id="run_1", final=True, status="succeeded", text="abc")
FRAMES = all_frames([START, Token(text="a"), Token(text="b"), Token(text="c"), END])


async def nothing_more(_: Request) -> Response:
    return Response(status_code=204, media_type="text/event-stream")


@pytest.fixture
async def server() -> AsyncIterator[ApiStub]:
    async with api_stub() as server:
        yield server


@pytest.fixture
async def client(server: ApiStub) -> AsyncIterator[NovaClient]:
    async with NovaClient(server.url, "nova_key", retry=PATIENT) as client:
        yield client


async def _all(client: NovaClient, after: EventCursor | None = None) -> list[tuple[str, Event]]:
    async with aclosing(client.runs.events("run_1", after=after)) as feed:
        return [(str(cursor), event) async for cursor, event in feed]


async def test_events_come_in_order_and_end_with_the_run(server: ApiStub, client: NovaClient) -> None:
    server.on("GET", EVENTS, streams(*FRAMES))
    assert [cursor for cursor, _ in await _all(client)] == ["1-1", "1-2", "1-3", "1-4", "1-5"]
    [headers] = server.asked("GET", EVENTS)
    assert headers["authorization"] == "Bearer nova_key"
    assert "last-event-id" not in headers


async def test_a_cut_stream_is_resumed_after_the_last_event(server: ApiStub, client: NovaClient) -> None:
    server.on("GET", EVENTS, streams(*FRAMES[:2], cut=True), streams(FRAMES[2], cut=True), streams(*FRAMES[3:]))
    assert [event for _, event in await _all(client)][1:4] == [Token(text="a"), Token(text="b"), Token(text="c")]
    assert [headers.get("last-event-id") for headers in server.asked("GET", EVENTS)] == [None, "1-2", "1-3"]


async def test_events_that_a_server_repeats_are_given_once(server: ApiStub, client: NovaClient) -> None:
    server.on("GET", EVENTS, streams(*FRAMES[:3], cut=True), streams(*FRAMES))
    assert [cursor for cursor, _ in await _all(client)] == ["1-1", "1-2", "1-3", "1-4", "1-5"]


async def test_a_stream_that_closes_without_an_end_is_requested_again(server: ApiStub, client: NovaClient) -> None:
    server.on("GET", EVENTS, streams(*FRAMES[:2]), streams(), streams(*FRAMES[2:]))
    assert len(await _all(client)) == 5


async def test_a_follower_that_resumes_after_the_last_event_of_an_ended_run_gets_nothing(
    server: ApiStub, client: NovaClient
) -> None:
    server.on("GET", EVENTS, nothing_more)
    assert await _all(client, EventCursor(attempt=1, seq=5)) == []


async def test_a_stream_that_is_lost_too_often_fails_with_how_to_resume(server: ApiStub, client: NovaClient) -> None:
    server.on("GET", EVENTS, streams(*FRAMES[:2], cut=True), streams(cut=True))
    with pytest.raises(Unavailable, match="nova runs tail run_1 --after 1-2"):
        await _all(client)
    assert len(server.asked("GET", EVENTS)) == 1 + PATIENT.attempts


async def test_progress_resets_the_count_of_failures(server: ApiStub, client: NovaClient) -> None:
    tokens = all_frames([START, *(Token(text=str(number)) for number in range(20)), END])
    server.on("GET", EVENTS, *(streams(part, cut=True) for part in tokens[:-1]), streams(tokens[-1]))
    assert len(await _all(client)) == 22


async def test_a_request_to_a_briefly_busy_server_is_repeated(server: ApiStub, client: NovaClient) -> None:
    busy = Problem(title="Unavailable", status=503, detail="Later.", code="unavailable")
    server.on("GET", EVENTS, says(busy, 503), streams(*FRAMES))
    assert len(await _all(client)) == 5


async def test_a_request_for_an_unknown_run_is_not_repeated(server: ApiStub, client: NovaClient) -> None:
    server.on("GET", EVENTS, says(Problem(title="x", status=404, detail="No run.", code="not_found"), 404))
    with pytest.raises(NotFound, match="No run"):
        await _all(client)
    assert len(server.asked("GET", EVENTS)) == 1


async def test_event_types_of_a_newer_server_are_skipped(server: ApiStub, client: NovaClient) -> None:
    unknown = 'id: 1-2\nevent: hologram\ndata: {"type":"hologram"}\n\n'
    server.on("GET", EVENTS, streams(FRAMES[0], unknown, ": heartbeat\n\n", *FRAMES[2:]))
    assert [cursor for cursor, _ in await _all(client)] == ["1-1", "1-3", "1-4", "1-5"]


async def test_an_end_that_is_not_final_does_not_end_the_stream(server: ApiStub, client: NovaClient) -> None:
    handed_over = StreamEnd(run_id="run_1", final=False, status="queued")
    frames = [*all_frames([START, handed_over]), *all_frames([START, END], attempt=2)]
    server.on("GET", EVENTS, streams(*frames))
    assert [cursor for cursor, _ in await _all(client)] == ["1-1", "1-2", "2-1", "2-2"]


async def test_a_submission_whose_answer_was_lost_is_repeated_under_its_key(
    server: ApiStub, client: NovaClient
) -> None:
    path = "/v1/threads/thr_1/runs"
    server.on("POST", path, streams(cut=True), says(run_view(), 202))
    run = await client.runs.create(RunCreate(message="hi"), thread_id="thr_1")
    assert run.id == "run_1"
    first, second = server.asked("POST", path)
    assert first["idempotency-key"] == second["idempotency-key"]


async def test_two_submissions_have_keys_of_their_own(server: ApiStub, client: NovaClient) -> None:
    path = "/v1/threads/thr_1/runs"
    server.on("POST", path, says(run_view(), 202))
    for _ in range(2):
        await client.runs.create(RunCreate(message="hi"), thread_id="thr_1")
    first, second = server.asked("POST", path)
    assert first["idempotency-key"] != second["idempotency-key"]


async def test_a_refusal_has_the_servers_message(server: ApiStub, client: NovaClient) -> None:
    problem = Problem(
        title="Conflict", status=409, detail="Busy.", code="thread_busy", context={"active_run_id": "run_9"}
    )
    server.on("POST", "/v1/threads/thr_1/runs", says(problem, 409))
    with pytest.raises(ThreadBusy, match="Busy") as caught:
        await client.runs.create(RunCreate(message="hi", on_busy="reject"), thread_id="thr_1")
    assert caught.value.fields["active_run_id"] == "run_9"


async def test_only_what_was_set_is_sent(server: ApiStub, client: NovaClient) -> None:
    server.on("POST", "/v1/threads/thr_1/runs", says(run_view(), 202))
    await client.runs.create(RunCreate(message="hi", queue="background"), thread_id="thr_1")
    assert server.requests[0][3] == b'{"message":"hi","queue":"background"}'


async def test_changes_are_followed_over_a_lost_connection_with_the_id_of_a_heartbeat(
    server: ApiStub, client: NovaClient
) -> None:
    unknown = CHANGES[1].replace("a-2-1-2", "a-3-1-3").replace('"subject":"run"', '"subject":"moon"')
    server.on(
        "GET",
        "/v1/events",
        streams(CHANGES[0], ": heartbeat\nid: a-1-9-9\n\n", cut=True),
        streams(CHANGES[1], unknown, cut=True),
        says(Problem(title="Forbidden", status=403, detail="No more.", code="forbidden"), 403),
    )
    seen: list[tuple[str, str]] = []

    async def follow() -> None:
        async with aclosing(client.changes.follow("run", "wait")) as feed:
            async for cursor, event in feed:
                seen.append((cursor, event.type))

    with pytest.raises(Forbidden):
        await follow()
    assert seen == [("a-1-0-1", "ready"), ("a-2-1-2", "change")]
    assert [headers.get("last-event-id") for headers in server.asked("GET", "/v1/events")] == [
        None,
        "a-1-9-9",
        "a-3-1-3",
    ]


async def test_watch_shows_what_changes_as_words_and_as_json(
    server: ApiStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOVA_HOME", str(tmp_path))
    refused = says(Problem(title="Forbidden", status=403, detail="No more.", code="forbidden"), 403)
    target = ["--api-url", server.url, "--api-key", "nova_key"]
    for form, shown in (
        (["--json"], '"subject":"run","id":"run_1","change":"queued"'),
        ([], "run run_1  queued  nova"),
    ):
        server.on("GET", "/v1/events", streams(*CHANGES), refused)
        result = await asyncio.to_thread(CliRunner().invoke, watch, ["run", *form, *target])
        assert shown in result.stdout
        assert isinstance(result.exception, Forbidden)
