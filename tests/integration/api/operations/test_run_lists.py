"""The list of runs: its filters without an index, its order, and its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from csv import DictReader
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest

from nova_workers.base.vocabulary import RunSort, SortOrder
from nova_workers.client.client import NovaClient
from nova_workers.client.paging import iterate
from nova_workers.contracts.http.run_lists import RunListQuery
from nova_workers.contracts.http.wire import BulkCancel, BulkRetry, RunPage
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.requirements import proves

_RUN = """
WITH run AS (
    INSERT INTO runs (id, tenant_id, thread_id, agent_id, agent_version, seq, content, status, attempt, source, meta,
                      result_text, error_kind, error_message, created_at, started_at, finished_at, stop_reason)
    SELECT each.id, :tenant_id, :thread_id, 'nova', each.version, each.seq, each.content, each.status, 1, each.source,
           each.meta, each.text, each.error_kind, each.error, now() - each.age_s * interval '1 second',
           now() - (each.age_s - each.queued_s) * interval '1 second',
           now() - (each.age_s - each.queued_s - each.took_s) * interval '1 second', each.stop_reason
      FROM jsonb_to_recordset(:runs::jsonb) AS each
           (id text, version int, seq bigint, content jsonb, status text, source text, meta jsonb, text text,
            error_kind text, error text, age_s float8, queued_s float8, took_s float8, stop_reason text)
)
INSERT INTO usage (id, run_id, tenant_id, thread_id, agent_id, input_tokens, output_tokens, cost_usd)
SELECT 'usg_' || each.id, each.id, :tenant_id, :thread_id, 'nova', each.tokens, 1, each.cost_usd
  FROM jsonb_to_recordset(:runs::jsonb) AS each (id text, tokens int, cost_usd numeric)
 WHERE each.tokens IS NOT NULL
"""


def _ended(id_: str, seq: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": id_, "version": 1, "seq": seq, "content": [{"type": "text", "text": f"Message {seq}"}],
        "status": "succeeded", "source": "api", "meta": {}, "text": "Done.", "age_s": 1_000, "queued_s": 0, "took_s": 1,
        "tokens": 10, "cost_usd": 0.1, "stop_reason": "end_turn", **fields,
    }  # fmt: skip


@pytest.fixture
async def runs(api: Api, database: Database) -> None:
    """Four ended runs, and their values in an order of its own each."""
    ended = [
        _ended("run_a", 11, cost_usd=0.5, tokens=7, took_s=30, queued_s=5, meta={"channel": "telegram", "to": "42"}),
        _ended(
            "run_b", 12, version=2, cost_usd=2.25, tokens=900, took_s=2, queued_s=60,
            meta={"tags": ["invoice", "eu"], "n": 7},
        ),
        _ended("run_c", 13, cost_usd=None, tokens=80, took_s=9, queued_s=1, source="trigger", text="It is 100% sure."),
        _ended(
            "run_d", 14, tokens=None, took_s=300, queued_s=20, status="failed", stop_reason="error", text=None,
            error_kind="invalid_request", error="The RETURN address is missing.",
        ),
    ]  # fmt: skip
    await database.execute(_RUN, tenant_id=api.tenant.id, thread_id=await api.thread(), runs=ended)


def _ids(page: RunPage) -> list[str]:
    return [run.id for run in page.items]


@proves("runs.filtered")
async def test_runs_are_filtered_by_what_has_no_index(api: Api, runs: None) -> None:
    cases: Sequence[tuple[dict[str, Any], list[str]]] = (
        ({"source": "trigger"}, ["run_c"]),
        ({"agent_version": 2}, ["run_b"]),
        ({"channel": "telegram"}, ["run_a"]),
        ({"tag": "eu"}, ["run_b"]),
        ({"metadata": ["n=7"]}, ["run_b"]),
        ({"metadata": ["to=42", "channel=telegram"]}, ["run_a"]),
        ({"metadata": ["n=7", "to=42"]}, []),
        ({"min_cost_usd": 0.5}, ["run_b", "run_a"]),
        ({"text": "message 1"}, ["run_d", "run_c", "run_b", "run_a"]),
        ({"text": "return ADDRESS"}, ["run_d"]),
        # What is a wildcard in SQL is a character like others.
        ({"text": "0% s"}, ["run_c"]),
        ({"text": "_"}, []),
        ({"text": "message", "min_cost_usd": 1, "tag": "invoice"}, ["run_b"]),
    )
    async with NovaClient(api.url, api.tenant.key) as nova:
        for which, expected in cases:
            found = await nova.runs.list(**which)
            assert (_ids(found), found.next_cursor, found.searched_within) == (expected, None, None), which
        assert _ids(await nova.runs.list(order="asc", text="message")) == ["run_a", "run_b", "run_c", "run_d"]
        # What many are changed by is what they are listed by.
        assert (await nova.runs.cancel_many(BulkCancel(tag="eu", dry_run=True))).requested == 0
        assert (await nova.runs.retry_many(BulkRetry(text="return", dry_run=True))).retried == 1
        assert (await nova.runs.retry_many(BulkRetry(channel="telegram", dry_run=True))).retried == 0
        assert (await nova.runs.retry_many(BulkRetry(rated="down", dry_run=True))).retried == 0
    wrong = (
        {"metadata": "n"},
        {"min_cost_usd": "-1"},
        {"min_cost_usd": "nan"},
        {"text": ""},
        {"source": "mail"},
        {"agent_version": 0},
    )
    for query in (*wrong, {"sort": "price"}, {"order": "up"}, {"tag": "a\x00"}):
        assert (await api.http.get("/v1/runs", params=query)).status_code == 422, query


@proves("runs.sorted")
async def test_runs_are_sorted_by_each_of_their_values_in_pages_that_new_runs_do_not_move(
    api: Api, database: Database, runs: None
) -> None:
    cases: Sequence[tuple[RunSort, str, str]] = (
        ("created", "dcba", "abcd"),
        # Those without the value are last in either order.
        ("cost", "badc", "abcd"),
        ("tokens", "bcad", "acbd"),
        ("duration", "dacb", "bcad"),
        ("queue_time", "bdac", "cadb"),
    )
    async with NovaClient(api.url, api.tenant.key) as nova:
        for sort, falling, rising in cases:
            orders: dict[SortOrder, str] = {"desc": falling, "asc": rising}
            for order, expected in orders.items():
                found = [run.id[-1] async for run in iterate(nova.runs.list, sort=sort, order=order, limit=1)]
                assert "".join(found) == expected, (sort, order)
        first = await nova.runs.list(sort="tokens", limit=2)
        thread_id = await api.thread()
        later = [_ended("run_e", 11, tokens=100_000), _ended("run_f", 12, tokens=50)]
        await database.execute(_RUN, tenant_id=api.tenant.id, thread_id=thread_id, runs=later)
        second = await nova.runs.list(sort="tokens", limit=2, cursor=first.next_cursor)
        assert (_ids(first), _ids(second), second.next_cursor) == (["run_b", "run_c"], ["run_a", "run_d"], None)
        assert _ids(await nova.runs.list(sort="tokens", limit=2)) == ["run_e", "run_b"]
    other = await api.http.get("/v1/runs", params={"sort": "cost", "cursor": first.next_cursor or ""})
    assert other.json()["code"] == "invalid_cursor"


@proves("runs.sorted")
async def test_open_runs_keep_their_places_while_a_list_is_read(api: Api, database: Database) -> None:
    made = [await api.run(await api.thread()) for _ in range(4)]
    # Closer to each other than two requests: what a run has waited when the second is answered is more than the first
    # one had when its page was made.
    for number, run_id in enumerate(made):
        await database.execute(
            "UPDATE runs SET created_at = '2026-01-01T00:00Z'::timestamptz + :number * interval '1 microsecond' "
            "WHERE id = :run_id",
            number=number,
            run_id=run_id,
        )
    async with NovaClient(api.url, api.tenant.key) as nova:
        found = [run.id async for run in iterate(nova.runs.list, sort="queue_time", limit=1)]
        assert found == made
        found = [run.id async for run in iterate(nova.runs.list, sort="queue_time", order="asc", limit=1)]
        assert found == made[::-1]


@proves("runs.sorted")
async def test_a_list_says_how_many_of_the_newest_it_looked_at(
    api: Api, runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("nova_workers.domain.runs.sql.lists", "api.routes.runs.lists"):
        monkeypatch.setattr(f"{module}.SEARCHED", 2)
        monkeypatch.setattr(f"{module}.SORTED", 3)
    async with NovaClient(api.url, api.tenant.key) as nova:
        # The newest two were looked at, and the next page goes on behind them.
        first = await nova.runs.list(text="done", limit=2)
        second = await nova.runs.list(text="done", limit=2, cursor=first.next_cursor)
        third = await nova.runs.list(text="done", limit=2, cursor=second.next_cursor)
        assert (_ids(first), first.searched_within) == ([], 2)
        assert (_ids(second), _ids(third), third.next_cursor) == (["run_b", "run_a"], [], None)
        assert [run.id async for run in iterate(nova.runs.list, text="done", order="asc")] == ["run_a", "run_b"]
        cut = await nova.runs.list(sort="cost")
        assert (_ids(cut), cut.sorted_within, cut.searched_within) == (["run_b", "run_d", "run_c"], 3, None)
        searched = await nova.runs.list(sort="cost", min_cost_usd=0.1)
        assert (_ids(searched), searched.sorted_within, searched.searched_within) == ([], None, 2)


@proves("runs.csv")
async def test_a_list_as_csv_has_its_runs_of_all_pages_in_its_order(
    api: Api, runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.routes.runs.lists._CSV_PAGE", 1)
    queries = (
        RunListQuery(),
        RunListQuery(sort="cost", order="asc"),
        RunListQuery(text="message", min_cost_usd=0.1, metadata="n=7"),
        RunListQuery(status=["failed"], since=datetime(2020, 1, 1, tzinfo=UTC)),
        RunListQuery(period="today", text="nothing has this"),
    )
    async with NovaClient(api.url, api.tenant.key) as nova:
        for query in queries:
            listed = await nova.runs.list(**query.parameters(datetime.now(UTC)))
            written = "".join([piece async for piece in nova.runs.csv(query)])
            assert [row["id"] for row in DictReader(StringIO(written))] == _ids(listed), query
            assert written.startswith("id,status,agent_id,")
        # A search ends with the last page that a file may have, however many runs are left.
        monkeypatch.setattr("api.routes.runs.lists._CSV_PAGES", 3)
        cut = "".join([piece async for piece in nova.runs.csv(RunListQuery())])
        assert [row["id"] for row in DictReader(StringIO(cut))] == ["run_d", "run_c", "run_b"]
    answer = await api.http.get("/v1/runs.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "content-length" not in answer.headers
    assert (await api.http.get("/v1/runs.csv", params={"sort": "price"})).status_code == 422
