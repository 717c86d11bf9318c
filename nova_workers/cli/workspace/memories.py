"""`nova memories`: what all agents remember."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.terminal.output import Column, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.http.memories import MemoryCreate, MemoryView

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="List, add and delete what agents remember."
)


@remote(app, "list")
async def list_memories(
    session: Session,
    contains: Annotated[str | None, typer.Option(help="Only those with these words.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """List memories, newest first."""
    page = await session.client.memories.list(contains=contains, limit=limit, cursor=cursor)
    columns: tuple[Column, ...] = ("id", ("saved by", "spare"), ("memory", "fold"), ("saved", "spare"))
    show_page(session.out, page, columns, _row, nothing="Nothing is remembered. Give an agent the capability memory.")


@remote(app, "create")
async def create(
    session: Session, content: Annotated[str, typer.Argument(help="One fact, in a sentence of its own.")]
) -> None:
    """Save a fact for all agents."""
    memory = await session.client.memories.create(build(MemoryCreate, {"content": content}))
    if session.out.json:
        session.out.document(memory)
    else:
        session.out.text(f"remembered as {memory.id}")


@remote(app, "delete")
async def delete(session: Session, memories: Annotated[list[str], typer.Argument(help="Ids of memories.")]) -> None:
    """Delete memories."""
    for memory in memories:
        await session.client.memories.delete(memory)
        if not session.out.json:
            session.out.text(f"deleted {memory}")
    if session.out.json:
        session.out.document({"deleted": memories})


def _row(memory: MemoryView) -> tuple[str, ...]:
    return (memory.id, memory.saved_by, short(memory.content, 200), stamp(memory.created_at))
