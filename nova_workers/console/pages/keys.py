"""API keys of the tenant."""

import asyncio
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import Rejected
from nova_workers.console.actions import act
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.local_times import read_local
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.keys import KeyCreate, Scope

_USUAL = ("runs", "agents", "workspace")


async def show_list(request: Request) -> Response:
    """Show a page of keys, and make a new one. Its secret is on the page that answers, and nowhere else."""
    client, form = client_of(request), Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            expires = read_local("expires_at", form.given("expires_at"), form.given("timezone") or "UTC")
            given = {"name": form.value("name"), "scopes": form.list("scopes"), "expires_at": expires}
            made = await client.keys.create(build(KeyCreate, given))
        except Rejected as error:
            form = form.refused(error)
        else:
            return render(request, "keys/secret.html", made=made)
    page, me = await asyncio.gather(client.keys.list(limit=PAGE_SIZE, cursor=cursor_of(request)), client.whoami())
    return render(
        request,
        "keys/list.html",
        status=422 if form.problem else 200,
        form=form,
        keys=page.items,
        pager=pager(request, page),
        timezone=me.timezone,
        scopes=get_args(Scope),
        chosen=form.list("scopes") if form.values else _USUAL,
    )


async def revoke(request: Request) -> Response:
    """Revoke a key."""
    calls, key_id = client_of(request).keys, request.path_params["key"]
    return await act(
        request, "/keys", lambda: calls.revoke(key_id), "The key is revoked; the API refuses it within seconds."
    )


PAGE = PageModule(
    routes=(
        Route("/keys", show_list, methods=["GET", "POST"]),
        Route("/keys/{key:id}/revoke", revoke, methods=["POST"]),
    ),
    nav=(NavEntry("Account", "Keys", "/keys", "keys", key="y", scope="keys"),),
)
