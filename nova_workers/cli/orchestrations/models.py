"""`nova orchestrations models`: what orchestrations know about models."""

from typing import Annotated, Any

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.chart import bar
from nova_workers.cli.terminal.output import Column
from nova_workers.contracts.http.orchestration_config import OrchestrationModelView, RankedScoreView
from nova_workers.vocabulary import MODEL_TIERS, TaskCategory

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Models that orchestrations choose from.",
)

_COLUMNS: tuple[Column, ...] = (
    *("model", "tier", ("", "spare"), "score", "runs", "cost"),
    *(("speed", "spare"), ("window", "spare"), ("names", "text"), ("cannot be had", "text")),
)
_BAR_CELLS = 12


@app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """Models that orchestrations choose from. Without a command: those that can be had."""
    if context.invoked_subcommand is None:
        group: Any = context.command
        command = group.commands["list"]
        command.invoke(command.make_context("list", [], parent=context))


@remote(app, "list")
async def list_models(
    session: Session,
    category: Annotated[TaskCategory, typer.Option(help="The kind of work that models are scored for.")] = "general",
    all_models: Annotated[bool, typer.Option("--all", help="Also those that cannot be had.")] = False,
) -> None:
    """List models with their scores for a kind of work, the best of the highest tier first.

    A score is learned from ended runs of agents; with too few of them it is the model's affinity.
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
    hidden = 0 if all_models else len(page.items) - len(usable)
    if hidden:
        session.out.note(f"{hidden} models cannot be had or are not permitted; --all shows them.")


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
        str(score.samples),
        f"{model.cost_factor:g}",
        f"{model.speed_factor:g}",
        "" if model.max_context_window is None else f"{model.max_context_window // 1_000}k",
        ", ".join(model.names),
        _why_not(model),
    )


def _why_not(model: OrchestrationModelView) -> str:
    if not model.enabled:
        return "disabled"
    return model.unavailable or ("" if model.permitted else "not among peer_models")
