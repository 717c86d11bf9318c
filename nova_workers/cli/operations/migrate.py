"""`nova migrate`: the schema of the database."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import asyncpg
import typer

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import ConfigurationError, Unavailable
from nova_workers.base.release import part
from nova_workers.cli.target import find_servers
from nova_workers.cli.terminal.output import JsonOption, Output
from nova_workers.devstack.first_start import make_first_key
from nova_workers.devstack.home import write_private

migrations, ensure_login = part("models.migrate"), part("models.rights.logins").ensure_login

app = typer.Typer(add_completion=False, rich_markup_mode=None, invoke_without_command=True)

StatusOption = Annotated[bool, typer.Option("--status", help="Only report; exit with 1 if a migration is due.")]

FirstKeyOption = Annotated[
    bool,
    typer.Option(
        "--first-key", help="Then make a tenant, its agents and a key, unless there is one. Shown on a terminal only."
    ),
]

FirstKeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--first-key-file", help="Do the same, and write the key to this file, which only its owner may read."
    ),
]

_UNREACHABLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


@app.command("migrate")
def migrate(
    status: StatusOption = False,
    first_key: FirstKeyOption = False,
    first_key_file: FirstKeyFileOption = None,
    json_mode: JsonOption = False,
) -> None:
    """Migrate the database's schema to this version. Does nothing if it is current, or of a later version.

    With --first-key the key is the last line, and is shown only once; it has every scope.
    """
    first_key = first_key or first_key_file is not None
    if first_key and first_key_file is None and not sys.stdout.isatty():
        raise ConfigurationError(
            "The first key is shown on a terminal only: other output is often kept as a log. Run this on a terminal, "
            "or give --first-key-file PATH."
        )
    settings = load_settings()
    used_url = find_servers(settings).database_url or settings.require_database_url()
    owner = settings.database_owner_url
    url = used_url if owner is None else owner.get_secret_value()
    out = Output(json_mode=json_mode)
    try:
        before, after = asyncio.run(_run(url, used_url, change=not status))
        key = _make_key(url, settings, first_key_file) if first_key and not status else None
    except migrations.PoolerBetween as error:
        raise ConfigurationError(str(error)) from error
    except _UNREACHABLE as error:
        raise Unavailable(
            f"The database cannot be reached or changed ({error}). Check NOVA_DATABASE_URL, or NOVA_DATABASE_OWNER_URL "
            "if that is set, and that its user may create tables, roles and extensions."
        ) from error
    needed = migrations.head()
    is_done = after is not None and after >= needed
    shown = key if first_key_file is None else None
    if out.json:
        out.document({"before": before, "now": after, "needed": needed, "at_head": is_done, "first_key": shown})
    elif before == after == needed:
        out.text(f"at {needed}, nothing to do")
    elif is_done and after != needed:
        out.text(f"at {after}, of a later version; this one needs {needed}: nothing to do")
    elif after == needed:
        out.text(f"migrated from {before or 'an empty database'} to {after}")
    else:
        out.text(f"at {after or 'nothing'}; this version needs {needed}: run `nova migrate`")
    if first_key and not status and not out.json:
        _show_key(out, key, first_key_file)
    if not is_done:
        raise typer.Exit(1)


def _show_key(out: Output, key: str | None, file: Path | None) -> None:
    if key is None:
        out.note("A key exists, so none was made. `nova keys create` makes more.", "yellow")
    elif file is not None:
        out.note(f"The first key, with every scope, is in {file}.", "yellow")
    else:
        out.note("The first key, with every scope. Keep it now: it is not shown again.", "yellow")
        out.text(key)


def _make_key(url: str, settings: Settings, file: Path | None) -> str | None:
    def keep(key: str) -> None:
        try:
            if file is not None:
                write_private(file, key + "\n")
        except OSError as error:
            raise ConfigurationError(f"{str(file)!r} cannot be written ({error}); no key was made.") from error

    return asyncio.run(make_first_key(url, timezone=settings.timezone, keep=keep))


async def _run(url: str, used_url: str, *, change: bool) -> tuple[str | None, str | None]:
    before = await migrations.current(url)
    if not change:
        return before, before
    await migrations.upgrade(url)
    if used_url != url:
        try:
            await ensure_login(url, used_url)
        except ValueError as error:
            raise ConfigurationError(
                f"NOVA_DATABASE_URL cannot be used beside NOVA_DATABASE_OWNER_URL: {error}."
            ) from error
    return before, await migrations.current(url)
