"""`nova keys`: create and revoke API keys."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, get_args

import typer

from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.resources import deletion, group, listing
from nova_workers.cli.terminal.output import Facts, stamp
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.http.keys import KeyCreate, KeyIdentity, KeyView, Scope

app = group("Make and revoke API keys.")

_DEFAULT_SCOPES = KeyCreate(name="any").scopes
_SCOPES = f"{', '.join(get_args(Scope))}; may be repeated. Default: {', '.join(_DEFAULT_SCOPES)}."


def _state(key: KeyView) -> str:
    if key.revoked_at is not None:
        return f"revoked {stamp(key.revoked_at)}"
    if key.expires_at is not None:
        return f"{'expired' if key.expires_at <= datetime.now(UTC) else 'until'} {stamp(key.expires_at)}"
    return "good"


def _last_use(key: KeyView) -> str:
    if key.last_used_at is None:
        return "never"
    return f"{stamp(key.last_used_at)} from {key.last_used_address or 'this machine'}"


listing(
    app,
    "List the tenant's keys, without their secrets.",
    lambda nova: nova.keys.list,
    Rows[KeyView](
        "No keys.",
        Column("id", lambda key: key.id),
        Column("name", lambda key: key.name, "text"),
        Column("prefix", lambda key: key.prefix, "spare"),
        Column("scopes", lambda key: ", ".join(key.scopes), "text"),
        Column("created", lambda key: key.created_at, "spare"),
        Column("last used", _last_use, "spare"),
        Column("state", _state, "text"),
    ),
)


def _identity(key: KeyIdentity) -> Facts:
    return (
        ("key", f"{key.key_id} ({key.key_name})"),
        ("begins with", key.prefix),
        ("scopes", ", ".join(key.scopes)),
        ("expires", key.expires_at or "never"),
        ("tenant", f"{key.tenant_id} ({key.tenant_name})"),
        ("time zone", key.timezone),
    )


@remote(app, "current")
async def current(session: Session) -> None:
    """Show the key in use, its tenant and its scopes."""
    session.out.record(await session.client.whoami(), _identity)


@remote(app, "create")
async def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[list[str] | None, typer.Option(metavar="SCOPE", help=_SCOPES)] = None,
    days: Annotated[float | None, typer.Option(min=0.0, help="How long it lives. Default: until revoked.")] = None,
) -> None:
    """Create a key. Its secret is shown only once."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    body = build(KeyCreate, given(name=name, scopes=scope or None, expires_at=expires_at))
    made = await session.client.keys.create(body)
    about = f"{made.id} with {', '.join(made.scopes)}. Keep it now: it is not shown again."
    session.out.done(made, made.key, about=about, style="yellow")


deletion(
    app,
    "Revoke keys. They stop working within seconds.",
    "keys: Ids of keys.",
    lambda nova: nova.keys.revoke,
    name="revoke",
    done="revoked",
)
