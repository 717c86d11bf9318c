"""`nova evals`: versions of an agent that answer the examples of a dataset."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.evaluations.reports import (
    CALIBRATION_COLUMNS,
    calibrations_of,
    interval,
    junit_of,
    markdown_of,
    number,
    summary_of,
    title_of,
)
from nova_workers.cli.resources import Argument, Filter, action, deletion, group, listing
from nova_workers.cli.terminal.output import Facts, Output, money, short
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.http.evaluations import EvaluationStart, EvaluationView, TrialView

app = group("Compare versions of an agent over a dataset, with replayed tools.", lists=True)

_POLL_S: Final = 1.0
_STILL_S: Final = 10.0
"""Without an answer, before a command that waits prints a note."""
_BELOW: Final = 1
"""Exit code of an evaluation that is below its threshold, or did not end by itself."""

EvaluationArgument = Annotated[str, typer.Argument(help="The evaluation's id.")]
_EVALUATION = Argument("evaluation", EvaluationArgument)
OutputOption = Annotated[
    Literal["text", "markdown", "junit"], typer.Option("--output", help="How the result is written; --json has it all.")
]


def _pass_rate(evaluation: EvaluationView) -> str | None:
    rate = None if evaluation.result is None else evaluation.result.candidate.pass_rate
    return None if rate is None else f"{rate:.1%}"


def _facts(evaluation: EvaluationView) -> Facts:
    return (
        ("id", evaluation.id),
        ("what", title_of(evaluation)),
        ("outcome", summary_of(evaluation)),
        ("estimate", None if evaluation.estimate_usd is None else money(evaluation.estimate_usd)),
        ("spent", None if evaluation.spent_usd is None else money(evaluation.spent_usd)),
        ("of it by judges", None if evaluation.judges_spent_usd is None else money(evaluation.judges_spent_usd)),
        ("created", evaluation.created_at),
    )


listing(
    app,
    "List evaluations, newest first.",
    lambda nova: nova.evaluations.list,
    Rows[EvaluationView](
        "No evaluations. Start one with nova evals run --agent AGENT --version N --dataset DATASET.",
        Column("id", lambda one: one.id),
        Column("agent", lambda one: one.agent),
        Column("version", lambda one: one.version),
        Column("against", lambda one: one.against, "spare"),
        Column("dataset", lambda one: one.dataset),
        Column("status", lambda one: one.status),
        Column("answers", lambda one: f"{one.done:,}/{one.trials:,}"),
        Column("passed", _pass_rate),
        Column("created", lambda one: one.created_at, "spare"),
    ),
    agent=Filter("Only those of this agent.", sent_as="agent_id"),
    dataset=Filter("Only those over this dataset."),
)
listing(
    app,
    "List the answers of an evaluation with their verdicts.",
    lambda nova: nova.evaluations.trials,
    Rows[TrialView](
        "No answers.",
        Column("example", lambda one: one.key),
        Column("version", lambda one: one.arm),
        Column("verdicts", lambda one: ", ".join(verdict.status for verdict in one.verdicts) or one.state),
        Column("answer", lambda one: short(one.answer or one.error or ""), "text"),
        Column("run", lambda one: one.run_id, "spare"),
    ),
    name="trials",
    of=_EVALUATION,
    key=Filter("Only those to the example with this key."),
)
action(
    app,
    "cancel",
    "Cancel an evaluation and its runs.",
    _EVALUATION,
    lambda nova, evaluation: nova.evaluations.cancel(evaluation),
    _facts,
)
deletion(
    app, "Delete evaluations.", "evaluations: Ids of evaluations that ended.", lambda nova: nova.evaluations.delete
)


@remote(app, "run")
async def run(
    session: Session,
    agent: Annotated[str, typer.Option(help="The agent.")],
    version: Annotated[int, typer.Option(min=1, help="The version to evaluate.")],
    dataset: Annotated[str, typer.Option(help="The dataset.")],
    against: Annotated[int | None, typer.Option(min=1, help="Compare with this version.")] = None,
    dataset_version: Annotated[int | None, typer.Option(min=1, help="Else the present one.")] = None,
    split: Annotated[str | None, typer.Option(help="Only examples of this split.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only examples with this tag; may be repeated.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each example is asked.")] = 1,
    evaluators: Annotated[
        Path | None, typer.Option(help="A JSON file with a list of evaluators; else the exact answer is expected.")
    ] = None,
    missing: Annotated[
        Literal["fail", "read_only"], typer.Option(help="What a tool call does that the example does not have.")
    ] = "fail",
    live: Annotated[list[str] | None, typer.Option(help="A tool that runs as usual; may be repeated.")] = None,
    budget: Annotated[float | None, typer.Option(help="Stop when so many dollars are spent.")] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help=f"Exit with {_BELOW} if a smaller part of verdicts is passed.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only estimate.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once it is started.")] = False,
    output: OutputOption = "text",
) -> None:
    """Let a version answer a dataset, and show how it compares.

    Exits with 1 if it is below the threshold, or was stopped or canceled.
    """
    body = build(
        EvaluationStart,
        given(
            agent=agent,
            version=version,
            against=against,
            dataset=dataset,
            dataset_version=dataset_version,
            split=split,
            tags=tag or None,
            repeats=repeats,
            evaluators=None if evaluators is None else _evaluators(evaluators),
            tools={"missing": missing, "live": live or []},
            budget_usd=budget,
            threshold=threshold,
            dry_run=dry_run,
        ),
    )
    started = await session.client.evaluations.start(body)
    if started.id is None or no_wait:
        estimate = "unknown" if started.estimate_usd is None else money(started.estimate_usd)
        facts: Facts = (("id", started.id), ("answers", started.trials), ("estimate", estimate))
        session.out.record(started, lambda _: facts)
        return
    session.out.note(f"{started.id}: {started.trials:,} answers. Ctrl-C leaves it running.")
    await _show_ended(session, await ended_evaluation(session, started.id), output)


@remote(app, "show")
async def show(session: Session, evaluation: EvaluationArgument, output: OutputOption = "text") -> None:
    """Show an evaluation: the regressions first."""
    await _show(session, await session.client.evaluations.get(evaluation), output)


@remote(app, "wait")
async def wait(session: Session, evaluation: EvaluationArgument, output: OutputOption = "text") -> None:
    """Wait until an evaluation has ended, and show it. Exits as nova evals run."""
    await _show_ended(session, await ended_evaluation(session, evaluation), output)


async def ended_evaluation(session: Session, evaluation_id: str) -> EvaluationView:
    """Return an evaluation once it has ended. Prints one note if no answer comes for some time."""
    done, at_s, is_noted = -1, 0.0, False
    while True:
        found = await session.client.evaluations.get(evaluation_id)
        if found.status != "running":
            return found
        if found.done > done:
            done, at_s = found.done, time.monotonic()
        elif not is_noted and time.monotonic() - at_s > _STILL_S:
            is_noted = True
            session.out.note(f"No answer for {_STILL_S:g} s. nova doctor shows whether workers and beat are alive.")
        await asyncio.sleep(_POLL_S)


async def _show_ended(session: Session, evaluation: EvaluationView, output: str) -> None:
    await _show(session, evaluation, output)
    is_below = evaluation.result is not None and evaluation.result.meets_threshold is False
    if is_below or evaluation.status != "done":
        raise typer.Exit(_BELOW)


async def _show(session: Session, evaluation: EvaluationView, output: str) -> None:
    out = session.out
    if output == "junit" and not out.json:
        out.text(junit_of(evaluation, [trial async for trial in _trials(session, evaluation.id)]))
    elif output == "markdown" and not out.json:
        out.text(markdown_of(evaluation))
    else:
        out.write(evaluation, _show_text)


def _show_text(out: Output, evaluation: EvaluationView) -> None:
    out.facts(_facts(evaluation))
    result = evaluation.result
    if result is None:
        return
    if result.regressions:
        out.table(
            ("regression", "candidate", "baseline"),
            [(one.key, f"{one.candidate:.3f}", f"{one.baseline:.3f}") for one in result.regressions],
        )
    out.table(
        ("evaluator", "passed", "failed", "not judged", "mean score", "baseline", "difference"),
        [
            (
                str(one.evaluator["kind"]),
                f"{one.passed:,}",
                f"{one.failed:,}",
                f"{one.not_judged:,}",
                number(one.mean_score),
                number(one.baseline_mean_score),
                interval(one.difference),
            )
            for one in result.evaluators
        ],
    )
    if calibrated := calibrations_of(result):
        out.table(CALIBRATION_COLUMNS, calibrated)


async def _trials(session: Session, evaluation_id: str) -> AsyncIterator[TrialView]:
    cursor: str | None = None
    while True:
        page = await session.client.evaluations.trials(evaluation_id, limit=200, cursor=cursor)
        for trial in page.items:
            yield trial
        cursor = page.next_cursor
        if cursor is None:
            return


def _evaluators(file: Path) -> Any:
    """Return the evaluators of a file.

    Raises:
        InvalidInput: It cannot be read.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"--evaluators: {file}: {error}") from error
