"""Webhooks: addresses that receive events, their tries, tests and secrets; and channels that wait after failures."""

import asyncio
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import Rejected
from nova_workers.base.vocabulary import WebhookKind
from nova_workers.console.access import agent_choices
from nova_workers.console.actions import Done, act
from nova_workers.console.forms import Form, build, changes, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.webhooks import WebhookCreate, WebhookPatch, WebhookRotate, WebhookView

_KINDS: tuple[str, ...] = get_args(WebhookKind)


async def show_list(request: Request) -> Response:
    """Show a page of webhooks, newest first, and the other channels that wait after failures."""
    client = client_of(request)
    page, waiting = await asyncio.gather(
        client.webhooks.list(limit=PAGE_SIZE, cursor=cursor_of(request)), client.deliveries.targets()
    )
    return render(
        request,
        "webhooks/list.html",
        webhooks=page.items,
        pager=pager(request, page),
        channels=[target for target in waiting.items if target.webhook_id is None],
    )


async def new(request: Request) -> Response:
    """Show an empty form, and create a webhook. Its secret is on the page that answers, and nowhere else."""
    form = Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            made = await client_of(request).webhooks.create(build(WebhookCreate, _of(form)))
        except Rejected as error:
            form = form.refused(error)
        else:
            return render(request, "webhooks/secret.html", webhook=made.webhook, secret=made.secret)
    return await _editor(request, form, None)


async def show(request: Request) -> Response:
    """Show a webhook and what was sent to it."""
    client, webhook_id = client_of(request), request.path_params["webhook"]
    webhook = await client.webhooks.get(webhook_id)
    sent = await client.deliveries.list(webhook_id=webhook_id, limit=PAGE_SIZE, cursor=cursor_of(request))
    return render(request, "webhooks/show.html", webhook=webhook, sent=sent.items, pager=pager(request, sent))


async def edit(request: Request) -> Response:
    """Show the form of a webhook, and change it."""
    client, webhook_id, form = client_of(request), request.path_params["webhook"], Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            stored = await client.webhooks.get(webhook_id)
            await client.webhooks.patch(webhook_id, changes(WebhookPatch, stored, _of(form)))
        except Rejected as error:
            form = form.refused(error)
        else:
            return see_other(request, f"/webhooks/{webhook_id}", flash="Saved.")
    return await _editor(request, form, await client.webhooks.get(webhook_id))


async def enable(request: Request) -> Response:
    """Enable a webhook again, which forgets its failures."""
    calls, webhook_id = client_of(request).webhooks, request.path_params["webhook"]
    enabled = WebhookPatch(enabled=True)
    return await act(
        request, f"/webhooks/{webhook_id}", lambda: calls.patch(webhook_id, enabled), "The webhook is enabled."
    )


async def test(request: Request) -> Response:
    """Send a test event."""
    calls, webhook_id = client_of(request).webhooks, request.path_params["webhook"]
    return await act(request, f"/webhooks/{webhook_id}", lambda: calls.test(webhook_id), "A test event is on its way.")


async def retry(request: Request) -> Response:
    """Try what waits for a webhook at once."""
    calls, webhook_id = client_of(request).deliveries, request.path_params["webhook"]
    return await act(request, f"/webhooks/{webhook_id}", lambda: calls.retry(webhook_id), "It is tried now.")


async def retry_channel(request: Request) -> Response:
    """Try what waits for another channel at once."""
    calls, form = client_of(request).deliveries, await read_form(request)
    return await act(request, "/webhooks", lambda: calls.retry(form.value("target")), "It is tried now.")


async def rotate(request: Request) -> Response:
    """Replace the secret; the new one is on the page that answers, and nowhere else."""
    made = await client_of(request).webhooks.rotate(request.path_params["webhook"], WebhookRotate())
    return render(request, "webhooks/secret.html", webhook=made.webhook, secret=made.secret)


async def delete(request: Request) -> Response:
    """Delete a webhook."""
    calls, webhook_id = client_of(request).webhooks, request.path_params["webhook"]
    deleted = Done("The webhook was deleted.", "/webhooks")
    return await act(request, f"/webhooks/{webhook_id}", lambda: calls.delete(webhook_id), deleted)


async def replay(request: Request) -> Response:
    """Send a delivery that has ended again, or at once one that waits for its next attempt."""
    calls, at = client_of(request).deliveries, request.path_params
    return await act(
        request, f"/webhooks/{at['webhook']}", lambda: calls.replay(at["delivery"]), "The delivery is sent now."
    )


async def _editor(request: Request, form: Form, webhook: WebhookView | None) -> Response:
    return render(
        request,
        "webhooks/edit.html",
        status=422 if form.problem else 200,
        form=form,
        webhook=webhook,
        agents=await agent_choices(client_of(request)),
        kinds=_KINDS,
        chosen=form.list("kinds") if form.values else (webhook.kinds if webhook else ()),
        enabled="enabled" in form.values if form.values else webhook is None or webhook.enabled,
    )


def _of(form: Form) -> dict[str, object]:
    return {
        "url": form.value("url"),
        "description": form.value("description"),
        "kinds": form.list("kinds"),
        "agent_id": form.given("agent_id"),
        "enabled": "enabled" in form.values,
    }


PAGE = PageModule(
    routes=(
        Route("/webhooks", show_list),
        Route("/webhooks/new", new, methods=["GET", "POST"]),
        Route("/webhooks/retry", retry_channel, methods=["POST"]),
        Route("/webhooks/{webhook:id}", show),
        Route("/webhooks/{webhook:id}/edit", edit, methods=["GET", "POST"]),
        Route("/webhooks/{webhook:id}/enable", enable, methods=["POST"]),
        Route("/webhooks/{webhook:id}/test", test, methods=["POST"]),
        Route("/webhooks/{webhook:id}/retry", retry, methods=["POST"]),
        Route("/webhooks/{webhook:id}/rotate", rotate, methods=["POST"]),
        Route("/webhooks/{webhook:id}/delete", delete, methods=["POST"]),
        Route("/webhooks/{webhook:id}/deliveries/{delivery:id}/replay", replay, methods=["POST"]),
    ),
    nav=(NavEntry("Account", "Webhooks", "/webhooks", "webhooks", key="w", id_prefix="whk_", scope="workspace"),),
)
