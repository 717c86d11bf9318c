"""Conversations from elsewhere: imported whole, and threads like others from then on."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from nova_workers.domain.threads.rules.transcript import conversation
from nova_workers.domain.threads.sql.history import load_history_turns
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is the badger report?", "created_at": "2024-03-01T09:00:00+01:00"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "call_1", "name": "find", "input": {"name": "badger"}},
        ],
        "created_at": "2024-03-01T09:00:05+01:00",
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "/srv/badger.pdf"}]},
    {"role": "assistant", "content": "It is in /srv.", "created_at": "2024-03-01T09:00:09+01:00"},
    {"role": "user", "content": "And the otter one?", "created_at": "2024-03-02T10:00:00+01:00"},
    {"role": "assistant", "content": "There is none."},
]


async def _import(api: Api, messages: list[dict[str, Any]] = MESSAGES, **fields: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/threads", json={"messages": messages, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def _counts(database: Database) -> dict[str, int]:
    tables = ("threads", "turns", "messages", "tool_calls", "runs", "usage", "effects", "deliveries", "upkeep_cursors")
    return {table: await database.fetchval(f"SELECT count(*) FROM {table}") for table in tables}


@proves("threads.imported")
async def test_an_imported_conversation_is_read_as_it_was_given(api: Api) -> None:
    thread = await _import(api, label="old", metadata={"from": "elsewhere"})
    assert (thread["turn_count"], thread["opening"]) == (2, "Where is the badger report?")
    assert thread["imported_at"] is not None
    listed = (await api.http.get("/v1/threads", params={"label": "old"})).json()["items"]
    assert listed == [thread]

    path = f"/v1/threads/{thread['id']}"
    messages: list[dict[str, Any]] = []
    cursor: str | None = None
    while not messages or cursor is not None:
        page = (
            await api.http.get(f"{path}/messages", params={"limit": 4, **({"cursor": cursor} if cursor else {})})
        ).json()
        messages += page["items"]
        cursor = page["next_cursor"]
    given = [
        [{"type": "text", "text": each["content"]}] if isinstance(each["content"], str) else each["content"]
        for each in MESSAGES
    ]
    assert [each["content"] for each in messages] == given
    assert [each["created_at"] for each in messages[1:4]] == [
        "2024-03-01T08:00:05Z",
        "2024-03-01T08:00:05Z",
        "2024-03-01T08:00:09Z",
    ]

    newest, first = (await api.http.get(f"{path}/turns")).json()["items"]
    assert [(turn["imported"], turn["run_id"], turn["depth"], turn["steps"]) for turn in (first, newest)] == [
        (True, None, 0, 2),
        (True, None, 1, 1),
    ]
    (call,) = first["tool_calls"]
    assert (call["id"], call["status"], call["result"]) == (
        "call_1",
        "completed",
        [{"type": "text", "text": "/srv/badger.pdf"}],
    )
    assert first["usage"]["input_tokens"] == 0


@proves("threads.imported")
async def test_an_import_has_no_runs_no_usage_and_no_effects(api: Api, database: Database) -> None:
    thread = await _import(api)
    counts = await _counts(database)
    assert {name: counts[name] for name in ("runs", "usage", "effects", "deliveries", "upkeep_cursors")} == {
        "runs": 0,
        "usage": 0,
        "effects": 0,
        "deliveries": 0,
        "upkeep_cursors": 0,
    }
    # Words are found at once.
    found = (await api.http.get("/v1/search", params={"q": "badger"})).json()["items"]
    assert {hit["thread_id"] for hit in found} == {thread["id"]}
    assert found[0]["said_at"] == "2024-03-01T08:00:00Z"
    await _import(api, effects=["embeddings"])
    assert (await _counts(database))["upkeep_cursors"] == 1


@proves("threads.imported")
async def test_the_next_run_continues_the_imported_conversation(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    thread = await _import(api)
    await api.run(thread["id"], "Write one.")
    turn = await worker.claim(thread["id"])
    head = turn.claim.parent_turn_id
    assert head == thread["head_turn_id"]
    assert turn.claim.context_tokens > 50
    async with database.connection() as connection:
        turns = await load_history_turns(connection, api.tenant.id, str(head))
    assert [message.role for message in conversation(turns)] == [each["role"] for each in MESSAGES]
    await turn.finish("Done.")
    depths = [each["depth"] for each in (await api.http.get(f"/v1/threads/{thread['id']}/turns")).json()["items"]]
    assert depths == [2, 1, 0]
    # It can be forked inside of what was imported.
    first = (await api.http.get(f"/v1/threads/{thread['id']}/turns")).json()["items"][-1]
    fork = await api.http.post(f"/v1/threads/{thread['id']}/fork", json={"turn_id": first["id"]})
    assert (fork.status_code, fork.json()["turn_count"], fork.json()["imported_at"]) == (201, 1, None)
    assert (await api.http.delete(f"/v1/threads/{thread['id']}")).status_code == 204
    assert (await api.http.get("/v1/search", params={"q": "badger"})).json()["items"] == []
    page = (await api.http.get(f"/v1/threads/{fork.json()['id']}/messages")).json()["items"]
    assert len(page) == 4


@proves("threads.imported-whole")
async def test_a_refused_import_writes_nothing(api: Api, database: Database) -> None:
    before = await _counts(database)
    for bad, place in (
        ([*MESSAGES, {"role": "tool", "content": "x"}], "messages.6.role"),
        ([*MESSAGES, {"role": "user", "content": "x", "name": "me"}], "messages.6.name"),
        ([*MESSAGES, MESSAGES[0]], "messages.6.created_at"),
        ([{"role": "user", "content": "x"}] * 10_001, "messages"),
    ):
        answer = await api.http.post("/v1/threads", json={"messages": bad})
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"].startswith(place)
    missing = await api.http.post("/v1/threads", json={"messages": MESSAGES, "agent_id": "nobody"})
    assert missing.status_code == 404
    await api.thread(label="taken")
    taken = await api.http.post("/v1/threads", json={"messages": MESSAGES, "label": "taken"})
    assert taken.status_code == 409
    assert await _counts(database) == {**before, "threads": before["threads"] + 1}


@pytest.mark.parametrize("messages", [[], MESSAGES], ids=["empty", "imported"])
@proves("requests.once", "threads.imported")
async def test_a_repeated_import_returns_the_first_thread(
    messages: list[dict[str, Any]], api: Api, database: Database
) -> None:
    headers = {"Idempotency-Key": "import-1"}
    first = await api.http.post("/v1/threads", json={"messages": messages}, headers=headers)
    again = await api.http.post("/v1/threads", json={"messages": messages, "agent_id": "nova"}, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotent-replayed"] == "true"
    other = await api.http.post("/v1/threads", json={"messages": MESSAGES[:1]}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")
    assert (await _counts(database))["threads"] == 1


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gather every statement that this process sends to Postgres."""
    statements: list[str] = []
    execute = asyncpg.Connection._do_execute  # pyright: ignore[reportPrivateUsage] - a logger is a connection's, not a pool's

    async def gather(connection: Any, query: str, *args: Any, **kwargs: Any) -> Any:
        statements.append(query)
        return await execute(connection, query, *args, **kwargs)

    monkeypatch.setattr(asyncpg.Connection, "_do_execute", gather)
    return statements


@proves("threads.imported")
async def test_ten_thousand_messages_are_imported_with_as_many_statements_as_four(
    api: Api, database: Database, sent: list[str]
) -> None:
    def turn(number: int) -> list[dict[str, Any]]:
        call_id = f"call_{number}"
        call = {"type": "tool_use", "id": call_id, "name": "look", "input": {"number": number, "deep": [1, 2]}}
        result = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": "seen " * 20}]}
        return [
            {"role": "user", "content": f"Question {number}: " + "why " * 20},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": f"Answer {number}: " + "because " * 20},
        ]

    await _import(api, turn(0))
    of_one_turn = len(sent)
    sent.clear()
    thread = await _import(api, [message for number in range(2_500) for message in turn(number)])
    of_all = len(sent)
    assert thread["turn_count"] == 2_500
    assert await database.fetchval("SELECT count(*) FROM messages") == 10_004
    assert 3 < of_all <= of_one_turn
