"""`nova orchestrations models`: what orchestrations know about models."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.base.clock import SystemClock
from nova_workers.base.errors import NotFound
from nova_workers.base.vocabulary import MODEL_TIERS, TaskCategory
from nova_workers.cli.command import Session, remote
from nova_workers.cli.resources import group
from nova_workers.cli.terminal.chart import bar
from nova_workers.cli.terminal.output import Heading
from nova_workers.contracts.http.orchestration_config import (
    OrchestrationConfigPut,
    OrchestrationModelView,
    RankedScoreView,
)
from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from nova_workers.domain.orchestrations.rules.models.programs import (
    DiscoveredModel,
    discover_models,
    merge_models,
    update_programs,
)
from nova_workers.domain.orchestrations.rules.models.registry import known_models

app = group("Models that orchestrations choose from. Without a command: those that can be had.", lists=True)

_COLUMNS: tuple[Heading, ...] = (
    *("model", "tier", ("", "spare"), "score", "from", "runs", "cost"),
    *(("speed", "spare"), ("window", "spare"), ("names", "text"), ("cannot be had", "text")),
)
_BAR_CELLS = 12
_MINUTES_FROM_S = 180


@remote(app, "list")
async def list_models(
    session: Session,
    category: Annotated[TaskCategory, typer.Option(help="The kind of work that models are scored for.")] = "general",
    all_models: Annotated[bool, typer.Option("--all", help="Also those that cannot be had.")] = False,
) -> None:
    """List models with their scores for a kind of work, the best of the highest tier first.

    A score is learned from ended runs of agents (from: ledger). With too few of them it is what the configured judge
    answered (judgement), or the model's affinity (static).
    """
    page = await session.client.orchestration_models.list()
    if session.out.json:
        session.out.document(page)
        return
    usable = [model for model in page.items if _is_usable(model)]
    shown = page.items if all_models else usable
    ranked = sorted(
        ((model, _score(model, category)) for model in shown),
        key=lambda each: (-MODEL_TIERS.index(each[0].tier), -each[1].score, each[0].cost_factor, each[0].model_id),
    )
    if ranked:
        session.out.table(_COLUMNS, [_row(model, score) for model, score in ranked])
    session.out.note(_last_check(page.items))
    if (judgement := await _judgement(session)) is not None:
        session.out.note(judgement)
    hidden = 0 if all_models else len(page.items) - len(usable)
    if hidden:
        session.out.note(f"{hidden} models cannot be had or are not permitted; --all shows them.")


@remote(app, "discover")
async def discover(
    session: Session,
    save: Annotated[bool, typer.Option("--save", help="Add new ones to the stored models.yaml.")] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Add new ones to this models.yaml.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Update the programs first; changes this machine.")] = False,
) -> None:
    """Read which models Codex, Gemini CLI and Claude Code on this machine know. Nothing set before is changed."""
    for line in await update_programs(os.environ) if update else ():
        session.out.note(line)
    found = await discover_models(os.environ, SystemClock().now())
    known = known_models(session.settings.model.aliases)
    new = _names(merge_models("", found.models, known=known).added)
    if write is not None:
        text = write.read_text("utf-8") if write.exists() else ""
        parse_config("", text, known=known, models_file=str(write))
        merged = merge_models(text, found.models, known=known)
        write.write_text(merged.text, "utf-8")
        new = _names(merged.added)
    if save:
        new = await _save(session, found.models)
    if session.out.json:
        rows = [{**asdict(each), "new": each.model_id in new} for each in found.models]
        session.out.document({"models": rows, "notes": found.notes})
        return
    if found.models:
        session.out.table(
            ("provider", "model", ""),
            [(each.provider, each.model_id, "new" if each.model_id in new else "") for each in found.models],
        )
    for note in found.notes:
        session.out.note(note)


async def _save(session: Session, models: Sequence[DiscoveredModel]) -> set[str]:
    configs = session.client.orchestration_config
    stored = await configs.get()
    known = known_models(session.settings.model.aliases)
    taken = parse_config(stored.text, stored.models_text, known=known).names_of_models()
    merged = merge_models(stored.models_text, models, known=known, taken=taken)
    if merged.added:
        body = OrchestrationConfigPut(text=stored.text, models_text=merged.text)
        await configs.put(body, if_version=stored.version)
    return _names(merged.added)


def _names(models: Iterable[DiscoveredModel]) -> set[str]:
    return {model.model_id for model in models}


def _is_usable(model: OrchestrationModelView) -> bool:
    return model.enabled and model.permitted and model.unavailable is None


def _score(model: OrchestrationModelView, category: TaskCategory) -> RankedScoreView:
    return next(score for score in model.scores if score.category == category)


def _row(model: OrchestrationModelView, score: RankedScoreView) -> tuple[str, ...]:
    return (
        f"{model.provider}/{model.model_id}",
        model.tier,
        bar(score.score, 1, _BAR_CELLS),
        f"{score.score:.2f}",
        score.source,
        str(score.samples),
        f"{model.cost_factor:g}",
        f"{model.speed_factor:g}",
        "" if model.max_context_window is None else f"{model.max_context_window // 1_000}k",
        ", ".join(model.names),
        _why_not(model),
    )


def _last_check(models: Iterable[OrchestrationModelView]) -> str:
    checked_at = next((model.checked_at for model in models), None)
    if checked_at is None:
        return "Which providers answer was not tried recently; the settings of the API say which can be had."
    return f"A worker tried the providers {_ago(checked_at)}."


async def _judgement(session: Session) -> str | None:
    """Return the result of the last question to the judge of models; None if none was asked."""
    try:
        asked = await session.client.orchestration_models.judgement()
    except NotFound:
        return None
    if asked.status == "failed":
        return f"The judge {asked.judge} gave no valid answer {_ago(asked.asked_at)}: {asked.error}"
    return f"The judge {asked.judge} was asked about models {_ago(asked.asked_at)} ({asked.status})."


def _ago(moment: datetime) -> str:
    age_s = max((SystemClock().now() - moment).total_seconds(), 0)
    return f"{age_s:.0f} s ago" if age_s < _MINUTES_FROM_S else f"{age_s / 60:.0f} min ago"


def _why_not(model: OrchestrationModelView) -> str:
    if not model.enabled:
        return "disabled"
    return model.unavailable or ("" if model.permitted else "not among peer_models")
