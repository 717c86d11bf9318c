"""`nova files`: the files that agents sent."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import Column, printable, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.deliveries import SentFileView

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="List, fetch and delete files of agents."
)


@remote(app, "list")
async def list_files(
    session: Session,
    agent: Annotated[str | None, typer.Option(help="Only those of this agent.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only those of this thread.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """List the files that agents sent, newest first."""
    page = await session.client.files.list(agent_id=agent, thread_id=thread, limit=limit, cursor=cursor)
    columns: tuple[Column, ...] = (
        *("id", ("agent", "spare"), ("name", "text"), "bytes"),
        *(("caption", "text"), ("sent", "spare")),
    )
    show_page(session.out, page, columns, _row, nothing="No files. Give an agent the capability file-send.")


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
    if session.out.json:
        session.out.document({"saved": str(path), "file": found})
    else:
        session.out.text(str(path))


@remote(app, "delete")
async def delete(session: Session, files: Annotated[list[str], typer.Argument(help="Ids of files.")]) -> None:
    """Delete files for good."""
    for file in files:
        await session.client.files.delete(file)
        if not session.out.json:
            session.out.text(f"deleted {file}")
    if session.out.json:
        session.out.document({"deleted": files})


def local_name(name: str) -> str:
    """Return a safe file name for the current directory: without a path, and not hidden."""
    last = printable(name).replace("\\", "/").rpartition("/")[2].strip().lstrip(".")
    return last or "file"


def _row(file: SentFileView) -> tuple[str, ...]:
    return (
        file.id,
        file.agent_id,
        short(file.name),
        str(file.size_bytes),
        short(file.caption or ""),
        stamp(file.created_at),
    )
