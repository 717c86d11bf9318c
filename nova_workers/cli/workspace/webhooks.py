"""`nova webhooks`: notify other programs of events."""

import asyncio
from typing import Annotated, get_args

import typer

from nova_workers.base.errors import InvalidInput, NovaError
from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.terminal.output import Column, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.deliveries import DeliveryView
from nova_workers.contracts.http.webhooks import (
    WebhookCreate,
    WebhookKind,
    WebhookPatch,
    WebhookRotate,
    WebhookSecret,
    WebhookView,
)

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Notify other programs of what happens here.",
)

_COLUMNS: tuple[Column, ...] = (
    *("id", ("url", "text"), ("tells of", "text")),
    *(("agent", "spare"), "on", ("failures", "spare")),
)
_SENT_COLUMNS: tuple[Column, ...] = (
    *("id", ("when", "spare"), ("kind", "spare"), "status"),
    *(("tries", "spare"), ("answer", "spare"), ("error", "text")),
)
_LOOK_S = 0.2

WebhookArgument = Annotated[str, typer.Argument(help="The webhook's id.")]
_KINDS = f"A kind to send, may be repeated: {', '.join(get_args(WebhookKind))}."
KindsOption = Annotated[list[str] | None, typer.Option("--kind", help=_KINDS)]


@remote(app, "list")
async def list_webhooks(session: Session, limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List webhooks, newest first."""
    page = await session.client.webhooks.list(limit=limit, cursor=cursor)
    show_page(session.out, page, _COLUMNS, _row, nothing="No webhooks. Make one with `nova webhooks create`.")


@remote(app, "show")
async def show(session: Session, webhook: WebhookArgument) -> None:
    """Show a webhook and its state."""
    _show(session, await session.client.webhooks.get(webhook))


@remote(app, "create")
async def create(
    session: Session,
    url: Annotated[str, typer.Argument(help="An https address.")],
    kind: KindsOption = None,
    agent: Annotated[str | None, typer.Option(help="Only what this agent does.")] = None,
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
) -> None:
    """Create a webhook, and print its secret, which is shown only once."""
    fields = {"url": url, "kinds": kind or [], "agent_id": agent, "description": description}
    _show_secret(session, await session.client.webhooks.create(build(WebhookCreate, fields)))


@remote(app, "edit")
async def edit(
    session: Session,
    webhook: WebhookArgument,
    url: Annotated[str | None, typer.Option(help="An https address.")] = None,
    kind: KindsOption = None,
    agent: Annotated[str | None, typer.Option(help="Only what this agent does; empty is all.")] = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
) -> None:
    """Change a webhook. An empty --kind selects all kinds."""
    given = {"url": url, "description": description, "agent_id": agent, "kinds": kind}
    changes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise InvalidInput("Nothing to change: give an option such as --url.")
    if agent == "":
        changes["agent_id"] = None
    if kind == [""]:
        changes["kinds"] = []
    _show(session, await session.client.webhooks.patch(webhook, build(WebhookPatch, changes)))


@remote(app, "rotate")
async def rotate(
    session: Session,
    webhook: WebhookArgument,
    grace: Annotated[int, typer.Option(help="Seconds for which the old secret signs too.")] = 86_400,
) -> None:
    """Replace the secret, and print the new one, which is shown only once."""
    body = build(WebhookRotate, {"grace_s": grace})
    _show_secret(session, await session.client.webhooks.rotate(webhook, body))


@remote(app, "test")
async def send_test(
    session: Session,
    webhook: WebhookArgument,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the first try.")] = 30.0,
) -> None:
    """Send a webhook a test message, and show the outcome."""
    delivery = await session.client.webhooks.test(webhook)
    try:
        async with asyncio.timeout(wait):
            # The error is set as soon as an attempt has failed.
            while delivery.status == "pending" and delivery.error is None:
                await asyncio.sleep(_LOOK_S)
                delivery = await session.client.deliveries.get(delivery.id)
    except TimeoutError:
        pass
    if delivery.status != "delivered":
        raise NovaError(f"{webhook} did not take {delivery.id}: {delivery.error or 'no worker has tried it yet'}")
    if session.out.json:
        session.out.document(delivery)
    else:
        session.out.text(f"{webhook} took {delivery.id} and answered {delivery.response_status}")


@remote(app, "sent")
async def sent(
    session: Session, webhook: WebhookArgument, limit: LimitOption = 50, cursor: CursorOption = None
) -> None:
    """List the deliveries to a webhook, newest first."""
    page = await session.client.deliveries.list(webhook_id=webhook, limit=limit, cursor=cursor)
    show_page(session.out, page, _SENT_COLUMNS, _sent_row, nothing="Nothing was sent there yet.")


@remote(app, "replay")
async def replay(session: Session, delivery: Annotated[str, typer.Argument(help="The delivery's id.")]) -> None:
    """Send a delivery again that was delivered or has failed. It keeps its id."""
    again = await session.client.deliveries.replay(delivery)
    if session.out.json:
        session.out.document(again)
    else:
        session.out.text(f"{again.id} is on its way again")


@remote(app, "enable")
async def enable(session: Session, webhook: WebhookArgument) -> None:
    """Enable a webhook, and reset its failures. Pending deliveries are sent."""
    _show(session, await session.client.webhooks.patch(webhook, WebhookPatch(enabled=True)))


@remote(app, "disable")
async def disable(session: Session, webhook: WebhookArgument) -> None:
    """Disable a webhook. Its deliveries stay pending."""
    _show(session, await session.client.webhooks.patch(webhook, WebhookPatch(enabled=False)))


@remote(app, "delete")
async def delete(session: Session, webhook: WebhookArgument) -> None:
    """Delete a webhook. Its pending deliveries fail."""
    await session.client.webhooks.delete(webhook)
    if session.out.json:
        session.out.document({"id": webhook, "deleted": True})
    else:
        session.out.text(f"deleted {webhook}")


def _row(webhook: WebhookView) -> tuple[str, ...]:
    return (
        webhook.id,
        webhook.url,
        ", ".join(webhook.kinds) or "everything",
        webhook.agent_id or "",
        "yes" if webhook.enabled else "no",
        str(webhook.failures) if webhook.failures else "",
    )


def _sent_row(delivery: DeliveryView) -> tuple[str, ...]:
    return (
        delivery.id,
        stamp(delivery.created_at),
        delivery.kind,
        delivery.status,
        str(delivery.attempts),
        "" if delivery.response_status is None else str(delivery.response_status),
        delivery.error or "",
    )


def _show(session: Session, webhook: WebhookView) -> None:
    if session.out.json:
        session.out.document(webhook)
        return
    session.out.facts(
        (
            ("id", webhook.id),
            ("url", webhook.url),
            ("description", webhook.description),
            ("tells of", ", ".join(webhook.kinds) or "everything"),
            ("agent", webhook.agent_id or "all"),
            ("on", "yes" if webhook.enabled else "no"),
            ("why off", webhook.disabled_reason or ""),
            ("failures", str(webhook.failures) if webhook.failures else ""),
            ("failing since", stamp(webhook.failing_since)),
            ("old secret until", stamp(webhook.previous_expires_at)),
            ("made", stamp(webhook.created_at)),
        )
    )


def _show_secret(session: Session, made: WebhookSecret) -> None:
    if session.out.json:
        session.out.document(made)
        return
    _show(session, made.webhook)
    session.out.text(f"secret   {made.secret}")
    session.out.note("Keep the secret where the receiver is: it is not shown again.")
