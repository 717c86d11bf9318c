"""A tenant's judge, a model, is asked once a day how good models are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry

from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.vocabulary import TASK_CATEGORIES
from nova_workers.bootstrap.model_choice import build_configs
from nova_workers.bootstrap.worker import build_worker
from nova_workers.contracts.http.orchestration_config import JudgementView, OrchestrationConfigPut, RankedScoreView
from nova_workers.contracts.http.usage_report import UsageReport
from nova_workers.domain.orchestrations.rules.models.availability import FleetAvailability
from nova_workers.domain.orchestrations.rules.models.catalog import ModelCatalog
from nova_workers.domain.orchestrations.rules.models.judge import ModelJudge
from nova_workers.domain.orchestrations.sql.judgements import begin_judgement, get_judgement
from nova_workers.domain.runs.sql.fleet import Switch, pause
from nova_workers.domain.usage.sql.report import report_usage
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import make_tenant
from tests.requirements import proves
from tests.support.servers.model_server import Hang, ModelServer, Part, Reply, Status, Stream, model_server
from tests.support.waiting import until

CONFIG = "defaults: {judge_model: opus, peer_models: [opus, sonnet]}"
OPUS, SONNET = "claude-opus-5-5", "claude-sonnet-5-5"
_LEARNED = """
INSERT INTO model_rankings (tenant_id, category, model, samples, success_rate, mean_cost_usd, mean_duration_ms, score)
VALUES (:tenant_id, 'coding', :model, 10, 0.5, 0.02, 1500, 0.4)
"""


def answer(scores: dict[str, float], *, twice: bool = False, **others: Any) -> Stream:
    """Return an answer with the same score of a model for each kind of work."""
    models = [{"model": name, "scores": dict.fromkeys(TASK_CATEGORIES, score)} for name, score in scores.items()]
    models *= 1 + twice
    return Stream((Part("text", [orjson.dumps({"models": models, **others}).decode()]),))


async def waits_for_a_row(database: Database) -> bool:
    """Return whether a statement waits for another transaction."""
    return await database.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
    )


def text(answered: str) -> Stream:
    return Stream((Part("text", [answered]),))


@dataclass
class Court:
    """A tenant with a judge, whose model is a server."""

    tenant_id: str
    database: Database
    settings: Settings
    server: ModelServer
    engine: AnthropicEngine

    @property
    def catalog(self) -> ModelCatalog:
        return ModelCatalog(self.database, FleetAvailability({"anthropic"}))

    def judge(self, *, every_s: float = 86_400.0, availability: FleetAvailability | None = None) -> ModelJudge:
        """Return the judge of another worker process."""
        return ModelJudge(
            self.database,
            build_configs(self.database, self.settings),
            ModelCatalog(self.database, availability or FleetAvailability({"anthropic"})),
            {"anthropic": self.engine},
            settings=self.settings.orchestration.model_copy(update={"rankings_every_s": every_s}),
            metrics=Metrics(CollectorRegistry()),
        )

    async def configure(self, config: str) -> None:
        await build_configs(self.database, self.settings).put(
            self.tenant_id, OrchestrationConfigPut(text=config), actor="person"
        )

    async def ask_again(self, *replies: Reply) -> int:
        """Ask as if the day were over."""
        self.server.reply(*replies)
        await self.database.execute("UPDATE model_judgements SET asked_at = asked_at - interval '1 day'")
        return await self.judge().tick()

    async def scores(self, model: str) -> dict[str, RankedScoreView]:
        models = await self.catalog.describe(self.tenant_id, build_configs(self.database, self.settings))
        found = next(each for each in models if each.model_id == model)
        return {each.category: each for each in found.scores}

    async def state(self) -> JudgementView | None:
        async with self.database.connection() as connection:
            return await get_judgement(connection, self.tenant_id)

    async def failure(self) -> str:
        """Return why the last question failed."""
        state = await self.state()
        assert state is not None
        assert state.status == "failed"
        assert state.error is not None
        return state.error

    async def usage(self) -> UsageReport:
        now = datetime.now(UTC)
        async with self.database.connection() as connection:
            return await report_usage(
                connection,
                self.tenant_id,
                group_by="model",
                since=now - timedelta(days=1),
                until=now + timedelta(days=1),
                timezone="UTC",
                limit=10,
            )


@pytest.fixture
async def court(database: Database, settings: Settings) -> AsyncIterator[Court]:
    """A tenant with a judge."""
    tenant = await make_tenant(database)
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0)
        made = Court(tenant.id, database, settings, server, engine)
        await made.configure(CONFIG)
        yield made
        await engine.close()


@proves("orchestration.judgement")
async def test_a_judge_scores_models_and_costs_the_tenant(court: Court) -> None:
    await court.database.execute(_LEARNED, tenant_id=court.tenant_id, model=f"{SONNET}-20270101")
    court.server.reply(answer({OPUS: 0.2, SONNET: 0.9}))
    assert await court.judge().tick() == 1
    asked = orjson.loads(court.server.conversation()[-1][1])
    assert [each["model"] for each in asked["models"]] == [OPUS, SONNET], "Only those that are permitted."
    assert asked["models"][1]["in_this_fleet"]["coding"]["ended_runs"] == 10
    assert court.server.requests[0]["max_tokens"] == 8_192
    assert "tools" not in court.server.requests[0]
    opus, sonnet = await court.scores(OPUS), await court.scores(SONNET)
    assert (opus["coding"].score, opus["coding"].source, opus["coding"].judgement) == (0.2, "judgement", 0.2)
    assert (sonnet["coding"].score, sonnet["coding"].source) == (0.65, "ledger"), (
        "Halfway from 0.9 to what was learned."
    )
    assert (await court.scores("claude-haiku-5-5"))["coding"].source == "static"
    state = await court.state()
    assert state is not None
    assert (state.status, state.judge, state.judged_by, state.error) == ("succeeded", OPUS, OPUS, None)
    usage = await court.usage()
    assert [(each.key, each.model_calls, each.runs) for each in usage.groups] == [(OPUS, 1, 0)]
    assert (usage.total.cost_usd or 0) > 0


@proves("orchestration.judgement")
async def test_a_judge_is_asked_once_a_day_by_any_number_of_workers(court: Court) -> None:
    court.server.reply(answer({OPUS: 0.2}))
    assert sum(await asyncio.gather(*(court.judge().tick() for _ in range(5)))) == 1
    assert await court.judge().tick() == 0
    assert len(court.server.requests) == 1
    assert await court.ask_again(answer({OPUS: 0.3})) == 1
    assert (await court.scores(OPUS))["planning"].score == 0.3
    assert (await court.usage()).total.model_calls == 2


@proves("orchestration.judgement")
async def test_of_two_workers_that_ask_at_once_the_later_one_does_not(court: Court) -> None:
    database, tenant_id = court.database, court.tenant_id

    async def begin() -> datetime | None:
        async with database.transaction() as connection:
            return await begin_judgement(connection, tenant_id, OPUS, fresh_s=86_400)

    async with database.transaction() as connection:
        assert await begin_judgement(connection, tenant_id, OPUS, fresh_s=86_400) is not None
        later = asyncio.create_task(begin())
        await until(lambda: waits_for_a_row(database), "the later one to wait for the row of the first")
    assert await later is None


@proves("orchestration.judgement")
@pytest.mark.parametrize(
    ("replies", "why"),
    [
        ((text("Opus is the best."),), "does not fulfil the output schema"),
        ((answer({OPUS: 1.5}),), "does not fulfil the output schema"),
        ((answer({"gpt-9": 0.5}),), "does not fulfil the output schema"),
        ((answer({OPUS: 0.5}, also="this"),), "does not fulfil the output schema"),
        ((answer({}),), "it has no score"),
        ((answer({OPUS: 0.5}, twice=True),), "it names a model twice"),
        ((Status(500),), "500"),
        ((Stream((Part("text", ['{"models": [']),), stop_reason="max_tokens"),), "cut off"),
    ],
)
async def test_a_bad_answer_changes_no_score(court: Court, replies: tuple[Reply, ...], why: str) -> None:
    await court.database.execute(_LEARNED, tenant_id=court.tenant_id, model=SONNET)
    before = await court.scores(OPUS), await court.scores(SONNET)
    court.server.reply(*replies)
    assert await court.judge().tick() == 0
    assert why in await court.failure()
    assert (await court.scores(OPUS), await court.scores(SONNET)) == before
    calls = len(court.server.requests)
    assert calls <= 2, "An answer of the wrong form is sent back once."
    assert (await court.usage()).total.model_calls == calls
    assert await court.ask_again(answer({OPUS: 0.2})) == 1
    assert await court.ask_again(*replies) == 0
    assert (await court.scores(OPUS))["coding"].score == 0.2, "The answer of the day before stays."
    state = await court.state()
    assert state is not None
    assert (state.status, state.judged_by) == ("failed", OPUS)


async def test_what_a_person_set_and_what_is_old_is_not_judged(court: Court) -> None:
    own = f"{CONFIG}\nmodel_registry: {{opus: {{affinities: {{coding: 0.99}}}}}}"
    await court.configure(own)
    court.server.reply(answer({OPUS: 0.2}))
    assert await court.judge().tick() == 1
    scores = await court.scores(OPUS)
    assert (scores["coding"].score, scores["coding"].source) == (0.99, "static")
    assert (scores["planning"].score, scores["planning"].source) == (0.2, "judgement")
    await court.database.execute("UPDATE model_judgements SET judged_at = now() - interval '8 days'")
    assert (await court.scores(OPUS))["planning"].source == "static"


async def test_without_a_judge_none_is_asked_and_earlier_answers_do_not_count(court: Court) -> None:
    court.server.reply(answer({OPUS: 0.2}))
    await court.judge().tick()
    await court.configure("defaults: {peer_models: [opus]}")
    assert (await court.scores(OPUS))["planning"].source == "static"
    assert await court.ask_again(answer({OPUS: 0.3})) == 0
    assert len(court.server.requests) == 1


async def test_no_judge_is_asked_where_work_is_paused_unpaid_or_unavailable(court: Court) -> None:
    court.server.reply(answer({OPUS: 0.2}))
    assert await court.judge(availability=FleetAvailability({"openai"})).tick() == 0
    async with court.database.transaction() as connection:
        await pause(connection, Switch("tenant", court.tenant_id), None)
    assert await court.judge().tick() == 0
    await court.database.execute("DELETE FROM switches")
    await court.database.execute("UPDATE tenants SET max_cost_usd_per_day = 0")
    assert await court.judge().tick() == 0
    await court.database.execute("UPDATE tenants SET max_cost_usd_per_day = 1")
    assert court.server.requests == []
    assert await court.state() is None
    assert await court.judge().tick() == 1


async def test_a_question_ends_with_the_drain_of_its_worker(court: Court) -> None:
    court.server.reply(Hang())
    judge = court.judge()
    asking = asyncio.create_task(judge.tick())
    async with asyncio.timeout(60):
        while not court.server.requests:
            await asyncio.wait((asking,), timeout=0.02)
        judge.drain()
        assert await asking == 0
    assert "aborted" in await court.failure()


async def test_a_worker_asks_the_judges_of_tenants(court: Court) -> None:
    court.server.reply(answer({OPUS: 0.2}))
    model = court.settings.model.model_copy(update={"base_url": court.server.url, "api_key": "k"})
    worker = build_worker(Settings.model_validate({**court.settings.model_dump(), "model": model.model_dump()}))
    try:
        await worker.learn_about_models()
    finally:
        await worker.aclose()
    state = await court.state()
    assert state is not None
    assert state.status == "succeeded"
