"""`nova feedback`: what people, end users and programs say of runs. `nova runs rate` gives it."""

from typing import Annotated

import typer

from nova_workers.base.vocabulary import FeedbackSource, Rating
from nova_workers.cli.command import Session, remote
from nova_workers.cli.resources import Filter, deletion, group, listing
from nova_workers.cli.terminal.output import Output, short
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.http.feedback import FeedbackReport, FeedbackView

app = group("See what people say of runs, and how the versions of an agent are rated.", lists=True)


def _score(feedback: FeedbackView) -> str | None:
    return None if feedback.score is None else f"{feedback.score:+g}"


listing(
    app,
    "List feedback, newest first.",
    lambda nova: nova.feedback.list,
    Rows[FeedbackView](
        "No feedback. Give some with nova runs rate RUN --score 1.",
        Column("id", lambda one: one.id),
        Column("run", lambda one: one.run_id),
        Column("agent", lambda one: one.agent_id, "spare"),
        Column("version", lambda one: one.agent_version),
        Column("name", lambda one: one.name),
        Column("score", _score),
        Column("label", lambda one: one.label, "spare"),
        Column("comment", lambda one: short(one.comment or ""), "text"),
        Column("source", lambda one: one.source, "spare"),
    ),
    agent=Filter("Only on runs of this agent.", sent_as="agent_id"),
    version=Filter("Only on runs of this version.", int, sent_as="agent_version", min=1),
    about=Filter("Only of this name.", sent_as="name", names=("--name",)),
    source=Filter("Only of this source.", FeedbackSource),
    rated=Filter("Only with a score above 0 (up), or below (down).", Rating),
)
deletion(app, "Delete feedback.", "feedback: Ids of feedback.", lambda nova: nova.feedback.delete)


@remote(app, "report")
async def report(session: Session, agent: Annotated[str, typer.Argument(help="The agent's id.")]) -> None:
    """Show how the versions of an agent were rated in the last 30 days."""
    session.out.write(await session.client.feedback.report(agent), _show)


def _show(out: Output, report: FeedbackReport) -> None:
    if not report.figures:
        out.note(f"No feedback since {report.since:%Y-%m-%d}.")
        return
    out.table(
        ("version", "name", "count", "up", "down", "mean score"),
        [
            (
                "unknown" if one.agent_version is None else str(one.agent_version),
                one.name,
                f"{one.count:,}",
                f"{one.up:,}",
                f"{one.down:,}",
                "" if one.mean_score is None else f"{one.mean_score:+.2f}",
            )
            for one in report.figures
        ],
    )
    if report.counted_within is not None:
        out.note(f"Counted are the newest {report.counted_within:,}.")
