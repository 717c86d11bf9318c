"""What a company has after two months: so that plots and lists in pictures show what they do for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from ulid import ULID

from nova_workers.base.vocabulary import WebhookKind
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.keys import KeyCreate
from nova_workers.contracts.http.notes import NoteCreate
from nova_workers.contracts.http.tasks import StepInput, TaskCreate
from nova_workers.contracts.http.tenants import TenantPatch
from nova_workers.contracts.http.triggers import TriggerCreate
from nova_workers.contracts.http.webhooks import WebhookCreate
from nova_workers.ledger.database import PostgresDatabase
from tests.support.waiting import until

_DAYS = 61
_BY_HOUR = (0, 0, 0, 0, 0, 1, 2, 4, 7, 9, 8, 6, 5, 7, 8, 6, 5, 3, 2, 1, 1, 1, 0, 0)
"""Most runs of an hour of a working day, from midnight on."""
_AT_WEEKENDS = 0.25
_WEEKENDS = (2, 3)
"""Of the weeks from the begin on: the days before the end are working days, whatever today is."""
_GROWTH = 0.6
"""How much more there is at the end of the time than at its begin, as a part."""


@dataclass(frozen=True)
class _Work:
    """What people ask an agent, and what an answer takes."""

    agent: str
    share: float
    model: str
    took_s: float
    tokens: int
    usd: float
    failing: float
    asked: tuple[str, ...]


_WORK = (
    _Work(
        "support", 0.62, "claude-haiku-4-5", 5.0, 3_400, 0.006, 0.01,
        (
            "Where is my parcel from order 4711?", "Can I change the delivery address?",
            "The invoice names the wrong company.",
            "How do I return the blue lamp?", "Is the desk in stock in oak?", "My discount code does not work.",
            "Please cancel order 4802.", "When does the shop in Leipzig open?", "The box arrived damaged.",
        ),
    ),
    _Work(
        "analyst", 0.2, "claude-sonnet-4-5", 38.0, 21_000, 0.09, 0.03,
        (
            "How did the newsletter of Tuesday sell?", "Compare returns by region.",
            "Which products ran out this week?",
            "Forecast the stock of lamps until spring.", "Sum up yesterday's complaints.",
        ),
    ),
    _Work(
        "importer", 0.12, "claude-haiku-4-5", 14.0, 9_000, 0.018, 0.09,
        ("Import prices-2026-11.csv", "Import stock of Lindqvist & Co", "Import the catalogue of Mendel Leuchten"),
    ),
    _Work(
        "writer", 0.06, "claude-sonnet-4-5", 61.0, 16_000, 0.11, 0.02,
        ("Draft the newsletter about the new desks.", "Write the text of the page on returns."),
    ),
)  # fmt: skip
_TENANT = "UPDATE tenants SET name = 'Lindqvist Interiors' WHERE id = :tenant_id"
_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id, title, archived, created_at, updated_at)
SELECT x.thread_id, :tenant_id, x.agent_id, x.text, true, x.at, x.at
  FROM jsonb_to_recordset(:rows) AS x(thread_id text, agent_id text, text text, at timestamptz)
"""
_RUNS = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, agent_version, seq, content, status, source, result_text,
                  error_kind, error_message, created_at, queued_at, rang_at, started_at, first_token_at, finished_at)
SELECT x.id, :tenant_id, x.thread_id, x.agent_id, 1, 1,
       jsonb_build_array(jsonb_build_object('type', 'text', 'text', x.text)), x.status, 'api',
       CASE WHEN x.status = 'succeeded' THEN 'Done.' END, CASE WHEN x.status = 'failed' THEN 'timeout' END,
       CASE WHEN x.status = 'failed' THEN 'The model did not answer in 60 s.' END, x.at, x.at, x.at, x.started_at,
       x.started_at, x.finished_at
  FROM jsonb_to_recordset(:rows) AS x(id text, thread_id text, agent_id text, text text, status text, at timestamptz,
                                      started_at timestamptz, finished_at timestamptz)
"""
_USAGE = """
INSERT INTO usage (id, tenant_id, run_id, thread_id, agent_id, model, input_tokens, output_tokens, cost_usd,
                   model_calls, duration_ms, created_at)
SELECT 'use_' || right(x.id, 26), :tenant_id, x.id, x.thread_id, x.agent_id, x.model, x.tokens, x.tokens / 9, x.usd, 2,
       x.took_ms, x.finished_at
  FROM jsonb_to_recordset(:rows) AS x(id text, thread_id text, agent_id text, model text, tokens int, usd numeric,
                                      took_ms int, finished_at timestamptz)
"""


_TRIGGERS = (
    ("support", "0 8 * * 1-5", "Answer what came overnight", "Open complaints, each morning"),
    ("importer", "30 5 * * *", "Import the prices of all suppliers", "Prices, nightly"),
    ("writer", "0 10 1 * *", "Draft the newsletter of the month", "Newsletter"),
)
_WEBHOOKS: tuple[tuple[str, str, tuple[WebhookKind, ...]], ...] = (
    ("https://shop.example.com/hooks/nova", "Orders in the shop", ("run_completed",)),
    ("https://chat.example.com/services/T024/B07", "The channel #agents", ("question", "approval", "notification")),
)
_TASKS = (
    (
        "importer",
        "Move suppliers to the new price list",
        ("List who sends what", "Write to each", "Check the first import"),
    ),
    ("writer", "Texts for the spring catalogue", ("Desks", "Lamps")),
)
_NOTES = (
    ("support", "Returns", "Free within 30 days; the label is in the box."),
    ("analyst", "Regions", "North, south and west, as in the shop's reports."),
)
_BUDGET_USD = 5.0


async def furnish(fleet: NovaClient) -> None:
    """Make what a company has beside its conversations. Nothing of it starts a run while pictures are taken."""
    await fleet.tenants.patch(TenantPatch(max_cost_usd_per_day=_BUDGET_USD))
    for agent_id, schedule, prompt, title in _TRIGGERS:
        trigger = TriggerCreate(agent_id=agent_id, kind="cron", schedule=schedule, prompt=prompt, title=title)
        await fleet.triggers.create(trigger)
    for url, description, kinds in _WEBHOOKS:
        await fleet.webhooks.create(WebhookCreate(url=url, description=description, kinds=kinds))
    for agent_id, title, steps in _TASKS:
        plan = tuple(StepInput(title=step, done=at == 0) for at, step in enumerate(steps))
        await fleet.tasks.create(TaskCreate(title=title, owner_agent_id=agent_id, steps=plan, status="draft"))
    for agent_id, title, content in _NOTES:
        await fleet.notes.create(NoteCreate(agent_id=agent_id, title=title, content=content))
    await fleet.keys.create(KeyCreate(name="Grafana exporter", role="viewer"))
    await fleet.keys.create(KeyCreate(name="Shop backend", scopes=["runs"]))
    # The parts of the work order, which have no provider, end after some tries.
    await until(lambda: _starts_all(fleet), "no run to be queued", timeout_s=180)


async def _starts_all(fleet: NovaClient) -> bool:
    return not (await fleet.runs.list(status="queued", limit=1)).items


async def fill_past(database_url: str, tenant_id: str, end: datetime) -> None:
    """Name the tenant, and write its runs of the last two months, which ended; their conversations are archived."""
    rows = list(_runs(end, Random(7)))
    database = PostgresDatabase(database_url, pool_size=1)
    try:
        await database.execute(_TENANT, tenant_id=tenant_id)
        for statement in (_THREADS, _RUNS, _USAGE):
            await database.execute(statement, tenant_id=tenant_id, rows=rows)
    finally:
        await database.close()


def _runs(end: datetime, chance: Random) -> Iterator[dict[str, Any]]:
    begin = end.replace(minute=0, second=0, microsecond=0) - timedelta(days=_DAYS)
    for hour in range(_DAYS * 24):
        at = begin + timedelta(hours=hour)
        share = _AT_WEEKENDS if hour // 24 % 7 in _WEEKENDS else 1
        most = _BY_HOUR[at.hour] * (1 + _GROWTH * hour / (_DAYS * 24)) * share
        for _ in range(round(most * chance.uniform(0.5, 1.0))):
            yield _run(at + timedelta(seconds=chance.uniform(0, 3_600)), chance)


def _run(at: datetime, chance: Random) -> dict[str, Any]:
    (work,) = chance.choices(_WORK, [each.share for each in _WORK])
    id_ = ULID.from_datetime(at)
    fails = chance.random() < work.failing
    took_s = 60.0 if fails else work.took_s * chance.lognormvariate(0, 0.45)
    started_at = at + timedelta(seconds=chance.uniform(0.05, 0.4))
    size = chance.lognormvariate(0, 0.3)
    return {
        "id": f"run_{id_}",
        "thread_id": f"thr_{id_}",
        "agent_id": work.agent,
        "model": work.model,
        "text": chance.choice(work.asked),
        "status": "failed" if fails else "succeeded",
        "tokens": round(work.tokens * size),
        "usd": round(work.usd * size, 5),
        "took_ms": round(took_s * 1_000),
        "at": at.isoformat(),
        "started_at": started_at.isoformat(),
        "finished_at": (started_at + timedelta(seconds=took_s)).isoformat(),
    }
