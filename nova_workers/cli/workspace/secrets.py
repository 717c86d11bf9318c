"""`nova secrets`: set, list and remove secrets of agents; values are never shown."""

import re
import sys
from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, remote
from nova_workers.cli.resources import deletion, group, listing
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.http.secrets import MAX_SECRET_BYTES, SECRET_NAME_PATTERN, SecretPut, SecretView

app = group("Set and delete secrets of agents; values are never shown.")

NameArgument = Annotated[str, typer.Argument(help="Capital letters, digits and underscores, such as GITHUB_TOKEN.")]


def _check(name: str) -> None:
    # Checked before it becomes part of a path.
    if re.fullmatch(SECRET_NAME_PATTERN, name) is None:
        raise InvalidInput(
            f"{name!r} is no name of a secret: at most 64 capital letters, digits, underscores; a letter first."
        )


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
    session.out.done(secret, f"set {name}")


listing(
    app,
    "List the tenant's secrets, without their values.",
    lambda nova: nova.secrets.list,
    Rows[SecretView](
        "No secrets.",
        Column("name", lambda secret: secret.name),
        Column("description", lambda secret: secret.description, "fold"),
        Column("key", lambda secret: secret.key_id, "spare"),
        Column("by", lambda secret: secret.updated_by, "spare"),
        Column("updated", lambda secret: secret.updated_at, "spare"),
    ),
)
deletion(
    app, "Delete secrets.", "names: Names of secrets.", lambda nova: nova.secrets.delete, check=_check, once="remove"
)


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
    unreadable = f"{result.unreadable} cannot be opened with the API's keys; its log names them."
    session.out.done(
        result.model_copy(update={"rotated": rotated}),
        f"{rotated} rotated to {result.key_id}, {result.remaining} remain",
        about=unreadable if result.unreadable else "",
        style="red",
    )


def _read_value(name: str) -> str:
    if sys.stdin.isatty():
        return typer.prompt(name, hide_input=True, confirmation_prompt=True, err=True)
    # Without the newline that `echo` adds.
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")
