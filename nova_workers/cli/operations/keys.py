"""`nova keys`: create and revoke API keys."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, get_args

import typer

from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.terminal.output import Column, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.http.keys import KeyCreate, KeyView, Scope

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Make and revoke API keys.")

_DEFAULT_SCOPES = KeyCreate(name="any").scopes
_SCOPES = f"{', '.join(get_args(Scope))}; may be repeated. Default: {', '.join(_DEFAULT_SCOPES)}."


@remote(app, "list")
async def list_keys(session: Session, limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List the tenant's keys, without their secrets."""
    page = await session.client.keys.list(limit=limit, cursor=cursor)
    columns: tuple[Column, ...] = (
        *("id", ("name", "text"), ("prefix", "spare"), ("scopes", "text")),
        *(("created", "spare"), ("last used", "spare"), ("state", "text")),
    )
    show_page(session.out, page, columns, _row, nothing="No keys.")


@remote(app, "current")
async def current(session: Session) -> None:
    """Show the key in use, its tenant and its scopes."""
    key = await session.client.whoami()
    if session.out.json:
        session.out.document(key)
        return
    session.out.facts(
        [
            ("key", f"{key.key_id} ({key.key_name})"),
            ("begins with", key.prefix),
            ("scopes", ", ".join(key.scopes)),
            ("expires", stamp(key.expires_at) if key.expires_at else "never"),
            ("tenant", f"{key.tenant_id} ({key.tenant_name})"),
            ("time zone", key.timezone),
        ]
    )


@remote(app, "create")
async def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[list[str] | None, typer.Option(metavar="SCOPE", help=_SCOPES)] = None,
    days: Annotated[float | None, typer.Option(min=0.0, help="How long it lives. Default: until revoked.")] = None,
) -> None:
    """Create a key. Its secret is shown only once."""
    given: dict[str, object] = {"name": name}
    if scope:
        given["scopes"] = scope
    if days is not None:
        given["expires_at"] = datetime.now(UTC) + timedelta(days=days)
    made = await session.client.keys.create(build(KeyCreate, given))
    if session.out.json:
        session.out.document(made)
        return
    session.out.text(made.key)
    session.out.note(f"{made.id} with {', '.join(made.scopes)}. Keep it now: it is not shown again.", "yellow")


@remote(app, "revoke")
async def revoke(session: Session, keys: Annotated[list[str], typer.Argument(help="Ids of keys.")]) -> None:
    """Revoke keys. They stop working within seconds."""
    for key in keys:
        await session.client.keys.revoke(key)
        if not session.out.json:
            session.out.text(f"revoked {key}")
    if session.out.json:
        session.out.document({"revoked": keys})


def _row(key: KeyView) -> tuple[str, ...]:
    if key.revoked_at is not None:
        state = f"revoked {stamp(key.revoked_at)}"
    elif key.expires_at is not None:
        state = f"{'expired' if key.expires_at <= datetime.now(UTC) else 'until'} {stamp(key.expires_at)}"
    else:
        state = "good"
    return (key.id, key.name, key.prefix, ", ".join(key.scopes), stamp(key.created_at), _last_use(key), state)


def _last_use(key: KeyView) -> str:
    if key.last_used_at is None:
        return "never"
    return f"{stamp(key.last_used_at)} from {key.last_used_address or 'this machine'}"
