"""`nova orchestrations changes`: the files that agents changed, and why."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import printable, short
from nova_workers.cli.terminal.paging import Column, CursorOption, LimitOption, Rows, show_page
from nova_workers.contracts.http.orchestrations import FileChange

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_WHY_CHARS = 300
_NOTED_FILES = 10
_PAGE = 200


@remote(app, "changes")
async def changes(
    session: Session,
    orchestration: Annotated[str, typer.Argument(metavar="ORCHESTRATION", help="The id.")],
    agent: Annotated[str | None, typer.Option(help="Only those of this agent: its id, or a unique part of it.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """List the files that agents changed with Write and Edit, and why: what they wrote or thought before."""
    page = await session.client.orchestrations.changes(orchestration, agent=agent, limit=limit, cursor=cursor)
    names: Mapping[str, str] = {} if session.out.json else await _names(session, orchestration)

    rows = Rows[FileChange](
        "No file was changed with Write or Edit.",
        Column("file", lambda change: change.path, "fold"),
        Column("agent", lambda change: names.get(change.agent_id, change.agent_id)),
        Column("why", lambda change: short(change.rationale or "", _WHY_CHARS), "fold"),
        Column("tool", lambda change: change.tool_name, "spare"),
        Column("at", lambda change: change.at, "spare"),
    )
    show_page(session.out, page, rows)


async def note_changes(session: Session, orchestration_id: str) -> None:
    """Write which files an orchestration changed, each once for an agent, with the best of its rationales."""
    page = await session.client.orchestrations.changes(orchestration_id, limit=_PAGE)
    if not page.items:
        return
    names = await _names(session, orchestration_id)
    best = _best(page.items)
    for change in best[:_NOTED_FILES]:
        why = f": {short(change.rationale, 120)}" if change.rationale else ""
        session.out.note(f"✎ {printable(change.path)} · {names.get(change.agent_id, change.agent_id)}{why}")
    if len(best) > _NOTED_FILES or page.next_cursor:
        session.out.note(f"  more: `nova orchestrations changes {orchestration_id}`")


def _best(found: Sequence[FileChange]) -> list[FileChange]:
    """Return one change for each file and agent: the one whose rationale gives most of a reason."""
    best: dict[tuple[str, str], FileChange] = {}
    for change in found:
        key = (change.path, change.agent_id)
        if key not in best or change.score > best[key].score:
            best[key] = change
    return list(best.values())


async def _names(session: Session, orchestration_id: str) -> Mapping[str, str]:
    tree = await session.client.orchestrations.tree(orchestration_id)
    return {agent.id: printable(agent.name) for agent in tree.agents}
