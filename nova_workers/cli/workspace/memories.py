"""`nova memories`: what all agents remember."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.resources import Filter, deletion, group, listing
from nova_workers.cli.terminal.output import short
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.http.memories import MemoryCreate, MemoryView

app = group("List, add and delete what agents remember.")

listing(
    app,
    "List memories, newest first.",
    lambda nova: nova.memories.list,
    Rows[MemoryView](
        "Nothing is remembered. Give an agent the capability memory.",
        Column("id", lambda memory: memory.id),
        Column("saved by", lambda memory: memory.saved_by, "spare"),
        Column("memory", lambda memory: short(memory.content, 200), "fold"),
        Column("saved", lambda memory: memory.created_at, "spare"),
    ),
    contains=Filter("Only those with these words."),
)


@remote(app, "create")
async def create(
    session: Session, content: Annotated[str, typer.Argument(help="One fact, in a sentence of its own.")]
) -> None:
    """Save a fact for all agents."""
    memory = await session.client.memories.create(build(MemoryCreate, {"content": content}))
    session.out.done(memory, f"remembered as {memory.id}")


deletion(app, "Delete memories.", "memories: Ids of memories.", lambda nova: nova.memories.delete)
