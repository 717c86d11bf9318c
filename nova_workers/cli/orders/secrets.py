"""`nova orders secrets`: make, list and remove the secrets of the keys of work orders."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import stamp
from nova_workers.cli.terminal.paging import show_page
from nova_workers.contracts.http.order_policies import (
    MAX_PREVIOUS_VALID_HOURS,
    OrderSecretCreate,
)

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Make, list and remove the secrets of the keys of work orders.",
)


@remote(app, "create")
async def create(
    session: Session,
    previous_valid_hours: Annotated[
        float,
        typer.Option(min=0, max=MAX_PREVIOUS_VALID_HOURS, help="How long keys of earlier secrets are accepted."),
    ] = 24,
) -> None:
    """Make the tenant's newest secret. It is shown once; callers derive the keys of their orders with it."""
    made = await session.client.work_order_secrets.create(OrderSecretCreate(previous_valid_hours=previous_valid_hours))
    if session.out.json:
        session.out.document(made)
        return
    session.out.text(made.secret)
    session.out.note(f"{made.id}: not shown again. Callers, and `nova orders submit`, get it as IDEMPOTENCY_SECRET.")


@remote(app, "list")
async def list_secrets(session: Session) -> None:
    """List the usable secrets, newest first, without their values."""
    page = await session.client.work_order_secrets.list()
    show_page(
        session.out,
        page,
        ("secret", "made", "until"),
        lambda secret: (secret.id, stamp(secret.created_at), stamp(secret.expires_at) if secret.expires_at else ""),
        nothing="No secrets: orders are refused. `nova orders secrets create` makes one.",
    )


@remote(app, "remove")
async def remove(session: Session, secret: Annotated[str, typer.Argument(help="The secret's id.")]) -> None:
    """Delete a secret: orders with its keys are refused at once."""
    await session.client.work_order_secrets.delete(secret)
    if session.out.json:
        session.out.document({"removed": secret})
    else:
        session.out.text(f"removed {secret}")
