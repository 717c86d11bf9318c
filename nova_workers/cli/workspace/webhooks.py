"""`nova webhooks`: notify other programs of events."""

import asyncio
from typing import Annotated, get_args

import typer

from nova_workers.base.errors import NovaError
from nova_workers.cli.command import Session, build, changes, remote
from nova_workers.cli.resources import Argument, action, deletion, group, listing
from nova_workers.cli.terminal.output import Facts, Output
from nova_workers.cli.terminal.paging import Column, CursorOption, LimitOption, Rows, show_page
from nova_workers.contracts.deliveries import DeliveryView, WaitingTarget
from nova_workers.contracts.http.webhooks import (
    WebhookCreate,
    WebhookKind,
    WebhookPatch,
    WebhookRotate,
    WebhookSecret,
    WebhookView,
)

app = group("Notify other programs of what happens here.")

_LOOK_S = 0.2

WebhookArgument = Annotated[str, typer.Argument(help="The webhook's id.")]
_KINDS = f"A kind to send, may be repeated: {', '.join(get_args(WebhookKind))}."
KindsOption = Annotated[list[str] | None, typer.Option("--kind", help=_KINDS)]
_WEBHOOK = Argument("webhook", WebhookArgument)


def _facts(webhook: WebhookView) -> Facts:
    return (
        ("id", webhook.id),
        ("url", webhook.url),
        ("description", webhook.description),
        ("tells of", _kinds(webhook)),
        ("agent", webhook.agent_id or "all"),
        ("on", _on(webhook)),
        ("why off", webhook.disabled_reason),
        ("failures", webhook.failures or None),
        ("failing since", webhook.failing_since),
        ("rests until", webhook.rests_until),
        ("old secret until", webhook.previous_expires_at),
        ("made", webhook.created_at),
    )


def _kinds(webhook: WebhookView) -> str:
    return ", ".join(webhook.kinds) or "everything"


def _on(webhook: WebhookView) -> str:
    return "yes" if webhook.enabled else "no"


listing(
    app,
    "List webhooks, newest first.",
    lambda nova: nova.webhooks.list,
    Rows[WebhookView](
        "No webhooks. Make one with `nova webhooks create`.",
        Column("id", lambda webhook: webhook.id),
        Column("url", lambda webhook: webhook.url, "text"),
        Column("tells of", _kinds, "text"),
        Column("agent", lambda webhook: webhook.agent_id, "spare"),
        Column("on", _on),
        Column("failures", lambda webhook: webhook.failures or None, "spare"),
    ),
)
action(app, "show", "Show a webhook and its state.", _WEBHOOK, lambda nova, webhook: nova.webhooks.get(webhook), _facts)


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
    session.out.write(await session.client.webhooks.create(build(WebhookCreate, fields)), _show_secret)


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
    kinds = [] if kind == [""] else kind
    changed = changes("an option such as --url", url=url, description=description, agent_id=agent, kinds=kinds)
    if agent == "":
        changed["agent_id"] = None
    session.out.record(await session.client.webhooks.patch(webhook, build(WebhookPatch, changed)), _facts)


@remote(app, "rotate")
async def rotate(
    session: Session,
    webhook: WebhookArgument,
    grace: Annotated[int, typer.Option(help="Seconds for which the old secret signs too.")] = 86_400,
) -> None:
    """Replace the secret, and print the new one, which is shown only once."""
    body = build(WebhookRotate, {"grace_s": grace})
    session.out.write(await session.client.webhooks.rotate(webhook, body), _show_secret)


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
    session.out.done(delivery, f"{webhook} took {delivery.id} and answered {delivery.response_status}")


_SENT = Rows[DeliveryView](
    "Nothing was sent there yet.",
    Column("id", lambda delivery: delivery.id),
    Column("when", lambda delivery: delivery.created_at, "spare"),
    Column("kind", lambda delivery: delivery.kind, "spare"),
    Column("status", lambda delivery: delivery.status),
    Column("tries", lambda delivery: delivery.attempts, "spare"),
    Column("answer", lambda delivery: delivery.response_status, "spare"),
    Column("error", lambda delivery: delivery.error, "text"),
)


@remote(app, "sent")
async def sent(
    session: Session, webhook: WebhookArgument, limit: LimitOption = 50, cursor: CursorOption = None
) -> None:
    """List the deliveries to a webhook, newest first."""
    page = await session.client.deliveries.list(webhook_id=webhook, limit=limit, cursor=cursor)
    show_page(session.out, page, _SENT)


@remote(app, "replay")
async def replay(session: Session, delivery: Annotated[str, typer.Argument(help="The delivery's id.")]) -> None:
    """Send a delivery again that was delivered or has failed. It keeps its id."""
    again = await session.client.deliveries.replay(delivery)
    session.out.done(again, f"{again.id} is on its way again")


_WAITING = Rows[WaitingTarget](
    "Nothing waits for a webhook or a channel that failed.",
    Column("target", lambda target: target.target),
    Column("address", lambda target: target.url, "spare"),
    Column("waiting", lambda target: target.waiting),
    Column("next try", lambda target: target.next_try_at),
    Column("error", lambda target: target.error, "text"),
)


@remote(app, "waiting")
async def waiting(session: Session) -> None:
    """List the webhooks and channels that failed, with the number of deliveries that wait for them."""
    show_page(session.out, await session.client.deliveries.targets(), _WAITING)


@remote(app, "retry")
async def retry(
    session: Session, target: Annotated[str, typer.Argument(help="A webhook's id, or the name of a channel.")]
) -> None:
    """Try what waits for a webhook or a channel at once."""
    await session.client.deliveries.retry(target)
    session.out.done({"retried": target}, f"What waits for {target} is tried now")


def _switch(name: str, help: str, change: WebhookPatch) -> None:
    action(app, name, help, _WEBHOOK, lambda nova, webhook: nova.webhooks.patch(webhook, change), _facts)


_switch("enable", "Enable a webhook, and reset its failures. Pending deliveries are sent.", WebhookPatch(enabled=True))
_switch("disable", "Disable a webhook. Its deliveries stay pending.", WebhookPatch(enabled=False))
deletion(
    app,
    "Delete webhooks. Their pending deliveries fail.",
    "webhooks: Ids of webhooks.",
    lambda nova: nova.webhooks.delete,
)


def _show_secret(out: Output, made: WebhookSecret) -> None:
    out.facts(_facts(made.webhook))
    out.text(f"secret   {made.secret}")
    out.note("Keep the secret where the receiver is: it is not shown again.")
