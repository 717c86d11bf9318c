"""`nova export` and `nova import`: the workspace as a folder of readable files."""

import shutil
import uuid
from collections.abc import AsyncGenerator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.archive.reader import read_folder
from nova_workers.cli.archive.writer import FolderWriter
from nova_workers.cli.command import Session, remote

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_PRIVATE = 0o700


@remote(app, "export")
async def export_folder(
    session: Session, folder: Annotated[Path, typer.Argument(metavar="DIR", help="Must not exist, or be empty.")]
) -> None:
    """Write everything that the tenant keeps into a folder: agents, conversations, tasks, notes, skills and more.

    It is as of one moment. Left out are runs that have not ended, values of secrets, and directories of agents.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{str(folder)!r} exists and is not empty. Choose another.", field="dir")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Written under another name until it is complete.
    making = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    making.mkdir(mode=_PRIVATE)
    try:
        writer = FolderWriter(making)
        async for line in session.client.archives.export():
            writer.take(line)
        writer.close()
        if folder.exists():
            folder.rmdir()
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    if session.out.json:
        session.out.document({"dir": str(folder), "rows": dict(writer.counts), "open_runs": writer.open_runs})
        return
    _show(session, "exported", dict(writer.counts))
    if writer.open_runs:
        session.out.note(f"{writer.open_runs} runs have not ended, and are not in it.", "yellow")
    session.out.note("Not in it: the directories of agents, the values of secrets, API keys, webhooks.")


@remote(app, "import")
async def import_folder(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `nova export` wrote.")],
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="Keep existing rows and add the rest. Without it, an existing row refuses the import."
        ),
    ] = False,
) -> None:
    """Read a folder of `nova export` into the tenant, whole or not at all."""
    rows = read_folder(folder)
    # Fails before connecting if the folder is not an export.
    first = next(rows)

    async def lines() -> AsyncGenerator[bytes]:
        for line in chain((first,), rows):
            yield line

    result = await session.client.archives.import_(lines(), merge=merge)
    if session.out.json:
        session.out.document(result)
        return
    _show(session, "imported", result.written)
    if result.kept:
        session.out.note(f"{sum(result.kept.values())} rows were there already, and stayed as they were.")
    if result.secrets:
        session.out.note(f"Set these secrets anew: {', '.join(result.secrets)}.", "yellow")


def _show(session: Session, verb: str, rows: dict[str, int]) -> None:
    session.out.table(("", verb), [(name, str(count)) for name, count in rows.items() if count])
