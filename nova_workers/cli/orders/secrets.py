"""`nova orders secrets`: make, list and delete the secrets of the keys of work orders."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.resources import deletion, group
from nova_workers.cli.terminal.paging import Column, Rows, show_page
from nova_workers.contracts.http.order_policies import MAX_PREVIOUS_VALID_HOURS, OrderSecretCreate, OrderSecretView

app = group("Make, list and delete the secrets of the keys of work orders.")


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
    about = f"{made.id}: not shown again. Callers, and `nova orders submit`, get it as IDEMPOTENCY_SECRET."
    session.out.done(made, made.secret, about=about)


_ROWS = Rows[OrderSecretView](
    "No secrets: orders are refused. `nova orders secrets create` makes one.",
    Column("secret", lambda secret: secret.id),
    Column("made", lambda secret: secret.created_at),
    Column("until", lambda secret: secret.expires_at),
)


@remote(app, "list")
async def list_secrets(session: Session) -> None:
    """List the usable secrets, newest first, without their values."""
    show_page(session.out, await session.client.work_order_secrets.list(), _ROWS)


deletion(
    app,
    "Delete secrets: orders with their keys are refused at once.",
    "secrets: Ids of secrets.",
    lambda nova: nova.work_order_secrets.delete,
    once="remove",
)
