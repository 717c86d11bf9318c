"""`nova keys`: create, rotate and revoke API keys."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, get_args

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.base.vocabulary import AccessRole
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.resources import deletion, group, listing
from nova_workers.cli.terminal.output import Facts, stamp
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.http.keys import KeyCreate, KeyIdentity, KeyRotate, KeyView, SignInView
from nova_workers.contracts.http.scopes import Scope

app = group("Make, rotate and revoke API keys.")

_DEFAULT_SCOPES = KeyCreate(name="any").scopes
_SCOPES = f"{', '.join(get_args(Scope))}; may be repeated. Default: {', '.join(_DEFAULT_SCOPES)}."
_NETWORKS = "Network (CIDR) or address of clients that may use it; may be repeated. Default: all."
_OVERLAP = "How long the key is still valid, such as 90s, 30m, 1h or 7d."
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _state(key: KeyView) -> str:
    if key.revoked_at is not None:
        return f"revoked {stamp(key.revoked_at)}"
    if key.replaced_by is not None and key.expires_at is not None and key.expires_at > datetime.now(UTC):
        return f"replaced by {key.replaced_by}, until {stamp(key.expires_at)}"
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
        Column("role", lambda key: key.role, "spare"),
        Column("scopes", lambda key: ", ".join(key.scopes), "text"),
        Column("networks", lambda key: ", ".join(key.networks) or "all", "spare"),
        Column("created", lambda key: key.created_at, "spare"),
        Column("last used", _last_use, "spare"),
        Column("state", _state, "text"),
    ),
)


listing(
    app,
    "List the sessions of people who are signed in.",
    lambda nova: nova.keys.sign_ins,
    Rows[SignInView](
        "No sessions.",
        Column("id", lambda session: session.id),
        Column("who", lambda session: session.name, "text"),
        Column("by", lambda session: "key" if session.person_id is None else "single sign-on"),
        Column("role", lambda session: session.role),
        Column("began", lambda session: session.began_at, "spare"),
        Column("last seen", lambda session: session.seen_at),
    ),
    name="sessions",
)

deletion(
    app,
    "End sessions of people. Their requests are refused within seconds.",
    "sessions: Ids of sessions.",
    lambda nova: nova.sign_out,
    name="end-session",
    done="ended",
)


def _identity(key: KeyIdentity) -> Facts:
    return (
        ("key", f"{key.key_id} ({key.key_name})"),
        ("begins with", key.prefix),
        ("role", key.role),
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
    role: Annotated[
        AccessRole | None, typer.Option(help="The scopes of a role, in place of --scope.", show_choices=True)
    ] = None,
    network: Annotated[list[str] | None, typer.Option(metavar="CIDR", help=_NETWORKS)] = None,
    days: Annotated[float | None, typer.Option(min=0.0, help="How long it lives. Default: until revoked.")] = None,
) -> None:
    """Create a key. Its secret is shown only once."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    fields = given(name=name, scopes=scope or None, role=role, networks=network or None, expires_at=expires_at)
    made = await session.client.keys.create(build(KeyCreate, fields))
    about = f"{made.id} with {', '.join(made.scopes)}. Keep it now: it is not shown again."
    session.out.done(made, made.key, about=about, style="yellow")


def _seconds(text: str) -> int:
    """Return a time that a person gave.

    Raises:
        InvalidInput: It is no whole number with a unit.
    """
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and unit in _UNITS_S):
        raise InvalidInput(f"{text!r} is no time. Give a number and a unit: 90s, 30m, 1h or 7d.", field="overlap")
    return int(number) * _UNITS_S[unit]


@remote(app, "rotate")
async def rotate(
    session: Session,
    key: Annotated[str, typer.Argument(help="Id of the key.")],
    overlap: Annotated[str, typer.Option(metavar="TIME", help=_OVERLAP)] = "1h",
) -> None:
    """Replace a key by a successor with the same rights. The key itself ends after the overlap.

    The successor's secret is shown only once; until it was used, the command can be repeated for another one.
    """
    made = await session.client.keys.rotate(key, build(KeyRotate, {"overlap_s": _seconds(overlap)}))
    about = f"{made.id} replaces {key}, which ends in {overlap}. Keep it now: it is not shown again."
    session.out.done(made, made.key, about=about, style="yellow")


deletion(
    app,
    "Revoke keys. They stop working within seconds.",
    "keys: Ids of keys.",
    lambda nova: nova.keys.revoke,
    name="revoke",
    done="revoked",
)
