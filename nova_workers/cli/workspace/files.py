"""`nova files`: the files that agents sent."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, remote
from nova_workers.cli.resources import Filter, deletion, group, listing
from nova_workers.cli.terminal.output import printable, short
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.deliveries import SentFileView

app = group("List, fetch and delete files of agents.")


listing(
    app,
    "List the files that agents sent, newest first.",
    lambda nova: nova.files.list,
    Rows[SentFileView](
        "No files. Give an agent the capability file-send.",
        Column("id", lambda file: file.id),
        Column("agent", lambda file: file.agent_id, "spare"),
        Column("name", lambda file: short(file.name), "text"),
        Column("bytes", lambda file: file.size_bytes),
        Column("caption", lambda file: short(file.caption or ""), "text"),
        Column("sent", lambda file: file.created_at, "spare"),
    ),
    agent=Filter("Only those of this agent.", sent_as="agent_id"),
    thread=Filter("Only those of this thread.", sent_as="thread_id"),
)


@remote(app, "get")
async def get(
    session: Session,
    file: Annotated[str, typer.Argument(help="The file's id.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Where to save it; - is stdout. Default: its name, here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Fetch a file. Existing files are overwritten only with --force."""
    found = await session.client.files.get(file)
    content = await session.client.files.read(file)
    if output == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    path = Path(output) if output is not None else Path(local_name(found.name))
    try:
        with path.open("wb" if force else "xb") as sink:
            sink.write(content)
    except FileExistsError as error:
        raise InvalidInput(f"{str(path)!r} is there already. Give --force, or another place with -o.") from error
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be written: {error.strerror}. Give a place with -o.") from error
    session.out.done({"saved": str(path), "file": found}, str(path))


deletion(app, "Delete files for good.", "files: Ids of files.", lambda nova: nova.files.delete)


def local_name(name: str) -> str:
    """Return a safe file name for the current directory: without a path, and not hidden."""
    last = printable(name).replace("\\", "/").rpartition("/")[2].strip().lstrip(".")
    return last or "file"
