"""`nova backup` and `nova restore`: the whole ledger, of all tenants, as one file."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import asyncpg
import typer

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import InvalidInput, Unavailable
from nova_workers.base.release import part
from nova_workers.cli.backups.broker import unused_redis
from nova_workers.cli.backups.container import Backup, Manifest, open_backup
from nova_workers.cli.backups.dump import back_up
from nova_workers.cli.backups.files import need_empty, read_files
from nova_workers.cli.backups.load import Loaded, check_backup, load_backup, make_database
from nova_workers.cli.backups.programs import without_password
from nova_workers.cli.backups.server import Server, on_server
from nova_workers.cli.terminal.output import JsonOption, Output, age, stamp
from nova_workers.devstack.first_start import MASTER_KEYS_FILE

drop_database = part("models.rights.restored").drop_database

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_RESUME = "nova fleet resume --scope fleet"
T = TypeVar("T")

_UNREACHABLE = (asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError, TimeoutError)

FileArgument = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="Must not exist. Default: nova-TIME.backup in this folder.")
]
IntoOption = Annotated[
    str | None, typer.Option("--into", metavar="NAME", help="Create this database on the server, and restore into it.")
]
DropOption = Annotated[
    bool,
    typer.Option(
        "--drop-deliveries", help="Do not send what was pending in the backup: the other fleet has sent it since."
    ),
]


WithFilesOption = Annotated[
    bool,
    typer.Option("--files/--no-files", help="With the directories of agents, if they are on this machine."),
]
FilesOption = Annotated[
    Path | None,
    typer.Option(
        "--files", metavar="FOLDER", help="Where the files of agents go. Default: as the settings; not with --into."
    ),
]
NoFilesOption = Annotated[bool, typer.Option("--no-files", help="Leave the files of agents in the backup.")]


@app.command("backup")
def backup(file: FileArgument = None, with_files: WithFilesOption = True, json_mode: JsonOption = False) -> None:
    """Write the whole database, as of one moment, and the files of agents into a file, while the fleet runs.

    Not in it: the master keys of secrets, which decrypt them.
    """
    settings, out = load_settings(), Output(json_mode=json_mode)
    path = file or Path(f"nova-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.backup")
    if path.exists():
        raise InvalidInput(f"{str(path)!r} exists. Choose another name.", field="file")
    began_s = time.monotonic()
    root = settings.workspace_root
    manifest = _reached(_back_up(settings, path, root if with_files and root.is_dir() else None, out))
    took_s = time.monotonic() - began_s
    size, rows = path.stat().st_size, sum(manifest.rows.values())
    if out.json:
        shown = manifest.model_dump(mode="json")
        out.document({"file": str(path), "bytes": size, "seconds": round(took_s, 3), "manifest": shown})
        return
    out.text(f"{path}: {_bytes(size)}, {rows:,} rows in {len(manifest.rows)} tables, in {age(took_s)}")
    out.note(f"As of {stamp(manifest.taken_at)}, schema {manifest.schema_revision}, nova {manifest.nova}.")
    if manifest.master_keys:
        out.note(f"Not in it: the master keys {_names(manifest.master_keys)} ({_keys_place(settings)}).", "yellow")
    if manifest.files is None:
        why = "--no-files" if root.is_dir() else f"this machine has no {str(root)!r}"
        out.note(f"Not in it: the directories of agents ({why}).", "yellow")
    else:
        out.note(f"{manifest.files:,} files of agents, from {root}: {_bytes(manifest.files_bytes)}.")
    if manifest.files_unreadable:
        out.note(
            f"Not in it: {manifest.files_unreadable:,} files and folders of agents, which this user may not read. Back "
            "up as the user of the workers.",
            "yellow",
        )


@app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `nova backup` wrote.")],
    into: IntoOption = None,
    drop_deliveries: DropOption = False,
    files: FilesOption = None,
    no_files: NoFilesOption = False,
    json_mode: JsonOption = False,
) -> None:
    """Read a backup into an empty database and an empty folder, and migrate it to this version.

    The restored fleet starts nothing and sends nothing outside until an operator resumes it.
    """
    settings, out = load_settings(), Output(json_mode=json_mode)
    found = open_backup(file)
    check_backup(found)
    root = _folder_of_files(settings, found, into, files, no_files=no_files)
    began_s = time.monotonic()
    server, loaded = _reached(_restore(settings, found, into, drop_deliveries=drop_deliveries, out=out))
    count = None if root is None else _read_files(found, root)
    took_s, url = time.monotonic() - began_s, without_password(server.used_url)
    missing = _missing_keys(settings, found.manifest)
    if out.json:
        out.document(
            {
                "database": url,
                "seconds": round(took_s, 3),
                "rows": loaded.rows,
                "taken_at": found.manifest.taken_at.isoformat(),
                "schema_revision": loaded.revision,
                "files": count,
                "requeued_runs": loaded.cleared.runs,
                "pending_deliveries": 0 if drop_deliveries else loaded.cleared.pending_deliveries,
                "missing_master_keys": missing,
                "paused": True,
            }
        )
        return
    out.text(f"restored {loaded.rows:,} rows into {url}, in {age(took_s)}, at schema {loaded.revision}")
    if count is not None:
        out.text(f"restored {count:,} files of agents into {root}")
    elif found.manifest.files is not None:
        out.note(f"Not restored: {found.manifest.files:,} files of agents. --files FOLDER extracts them.", "yellow")
    else:
        out.note("The backup has no files of agents.", "yellow")
    for line in _next_steps(settings, found.manifest, loaded, missing, into=into, dropped=drop_deliveries):
        out.note(line, "yellow")


async def _back_up(settings: Settings, path: Path, files: Path | None, out: Output) -> Manifest:
    async with on_server(settings, out.note, make=False) as server:
        return await back_up(server.url, path, files)


def _folder_of_files(
    settings: Settings, found: Backup, into: str | None, files: Path | None, *, no_files: bool
) -> Path | None:
    """Return where the files of agents go, which is empty; None if they are not restored."""
    if no_files and files is not None:
        raise InvalidInput("--files and --no-files exclude each other.", field="files")
    if no_files or found.files_offset is None or (into is not None and files is None):
        return None
    root = files or settings.workspace_root
    need_empty(root)
    return root


def _read_files(found: Backup, root: Path) -> int:
    with found.path.open("rb") as file:
        file.seek(found.files_offset or 0)
        return read_files(file, root)


async def _restore(
    settings: Settings, found: Backup, into: str | None, *, drop_deliveries: bool, out: Output
) -> tuple[Server, Loaded]:
    async with on_server(settings, out.note, make=True) as server:
        if into is not None:
            made = await make_database(server, into)
            try:
                return made, await load_backup(found, made, drop_deliveries=drop_deliveries, empty_redis=None)
            except BaseException:
                await drop_database(server.url, into)
                raise
        async with unused_redis(settings, home_is_locked=server.embedded) as empty_redis:
            return server, await load_backup(found, server, drop_deliveries=drop_deliveries, empty_redis=empty_redis)


def _next_steps(
    settings: Settings,
    manifest: Manifest,
    loaded: Loaded,
    missing: Sequence[str],
    *,
    into: str | None,
    dropped: bool,
) -> list[str]:
    """Return the notes for the operator: what to know and to do, in order."""
    cleared = loaded.cleared
    waiting = "" if dropped else f" {cleared.pending_deliveries} deliveries are pending."
    steps = [f"It is of {stamp(manifest.taken_at)}. The fleet is paused and sends nothing outside.{waiting}"]
    if cleared.runs:
        steps.append(f"{cleared.runs} runs were executing then; they continue after their last step.")
    if missing:
        steps.append(
            f"Secrets are encrypted under master keys that are not here: {_names(missing)}. Put them into "
            f"{_keys_place(settings)}."
        )
    if into is not None:
        steps.append("Give its processes this database, and a Redis of their own that is empty.")
    steps.append(f"Start it, stop the fleet that was backed up if it still runs, and then: {_RESUME}")
    return steps


def _reached(work: Coroutine[Any, Any, T]) -> T:
    """Run it, with one line for people where the database fails."""
    try:
        return asyncio.run(work)
    except _UNREACHABLE as error:
        raise Unavailable(
            f"The database refused or did not answer ({error}). Check NOVA_DATABASE_URL, or NOVA_DATABASE_OWNER_URL if "
            "that is set, and that its user owns the tables and may create roles and extensions.",
            server="postgres",
        ) from error


def _missing_keys(settings: Settings, manifest: Manifest) -> list[str]:
    """Return the master keys of a backup that the fleet here does not have."""
    lines = settings.secrets.source.texts()
    path = settings.home / MASTER_KEYS_FILE
    if not lines and path.exists():
        lines = tuple(path.read_text(encoding="utf-8").split())
    here = {line.partition(":")[0] for line in lines}
    return [name for name in manifest.master_keys if name not in here]


def _keys_place(settings: Settings) -> str:
    return settings.secrets.variable if settings.secrets.are_given else str(settings.home / MASTER_KEYS_FILE)


def _names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _bytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size:,} bytes"
