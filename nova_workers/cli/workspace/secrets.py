"""`nova secrets`: set, list and remove secrets of agents; values are never shown."""

import re
import sys
from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import Column, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.http.secrets import MAX_SECRET_BYTES, SECRET_NAME_PATTERN, SecretPut, SecretView

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Set and remove secrets of agents; values are never shown.",
)

NameArgument = Annotated[str, typer.Argument(help="Capital letters, digits and underscores, such as GITHUB_TOKEN.")]


@remote(app, "set")
async def set_secret(
    session: Session,
    name: NameArgument,
    description: Annotated[str | None, typer.Option(help="What it is for. Agents see it.")] = None,
) -> None:
    """Create a secret or replace its value, which is read from stdin, or prompted for on a terminal.

    Not an argument: other users can list the arguments of processes, and shells keep a history.
    """
    _check(name)
    value = _read_value(name)
    if not 0 < len(value) <= MAX_SECRET_BYTES:
        raise InvalidInput(f"The value has {len(value)} characters; it needs 6 to {MAX_SECRET_BYTES}.")
    secret = await session.client.secrets.put(name, SecretPut(value=value, description=description))
    if session.out.json:
        session.out.document(secret)
    else:
        session.out.text(f"set {name}")


@remote(app, "list")
async def list_secrets(session: Session, limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List the tenant's secrets, without their values."""
    page = await session.client.secrets.list(limit=limit, cursor=cursor)
    columns: tuple[Column, ...] = (
        *("name", ("description", "fold")),
        *(("key", "spare"), ("by", "spare"), ("updated", "spare")),
    )
    show_page(session.out, page, columns, _row, nothing="No secrets.")


@remote(app, "remove")
async def remove(session: Session, names: Annotated[list[str], typer.Argument(help="Names of secrets.")]) -> None:
    """Delete secrets."""
    for name in names:
        _check(name)
    for name in names:
        await session.client.secrets.delete(name)
        if not session.out.json:
            session.out.text(f"removed {name}")
    if session.out.json:
        session.out.document({"removed": names})


@remote(app, "rotate")
async def rotate(session: Session) -> None:
    """Encrypt again all secrets of all tenants that are not under the current master key.

    Put the new key first in NOVA_SECRETS__KEYS of the API and the workers and restart them, rotate, and remove the old
    key once nothing remains. It may be repeated at any time, and run several times at once.
    """
    rotated = 0
    while True:
        result = await session.client.secrets.rotate()
        rotated += result.rotated
        if result.rotated == 0 or result.remaining <= result.unreadable:
            break
    if session.out.json:
        session.out.document(result.model_copy(update={"rotated": rotated}))
        return
    session.out.text(f"{rotated} rotated to {result.key_id}, {result.remaining} remain")
    if result.unreadable:
        session.out.note(f"{result.unreadable} cannot be opened with the API's keys; its log names them.", "red")


def _check(name: str) -> None:
    # Checked before it becomes part of a path.
    if re.fullmatch(SECRET_NAME_PATTERN, name) is None:
        raise InvalidInput(
            f"{name!r} is no name of a secret: at most 64 capital letters, digits, underscores; a letter first."
        )


def _read_value(name: str) -> str:
    if sys.stdin.isatty():
        return typer.prompt(name, hide_input=True, confirmation_prompt=True, err=True)
    # Without the newline that `echo` adds.
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


def _row(secret: SecretView) -> tuple[str, ...]:
    return (secret.name, secret.description, secret.key_id, secret.updated_by, stamp(secret.updated_at))
