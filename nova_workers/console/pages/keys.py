"""API keys of the tenant."""

import asyncio
from datetime import UTC, datetime
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import InvalidInput, Rejected
from nova_workers.console.actions import act
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.local_times import read_local
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.keys import KeyCreate, KeyRotate
from nova_workers.contracts.http.scopes import ROLES, Scope

_USUAL = ("runs", "agents", "workspace")
_OVERLAPS = ((0, "0 minutes"), (3_600, "1 hour"), (86_400, "1 day"), (604_800, "1 week"))
"""How long a key that is rotated stays valid, in seconds."""


async def show_list(request: Request) -> Response:
    """Show a page of keys, and make a new one. Its secret is on the page that answers, and nowhere else."""
    client, form = client_of(request), Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            expires = read_local("expires_at", form.given("expires_at"), form.given("timezone") or "UTC")
            made = await client.keys.create(build(KeyCreate, _given(form) | {"expires_at": expires}))
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
        now=datetime.now(UTC),
        overlaps=_OVERLAPS,
        roles=[(role, f"{role.capitalize()}: {', '.join(scopes)}") for role, scopes in ROLES.items()],
        chosen=form.list("scopes") if form.values else _USUAL,
    )


def _given(form: Form) -> dict[str, object]:
    """Return the fields of a new key. The scopes that are ticked count where no role is chosen."""
    role = form.given("role")
    rights: dict[str, object] = {"scopes": form.list("scopes")} if role is None else {"role": role}
    return {"name": form.value("name"), "networks": form.value("networks").replace(",", " ").split(), **rights}


def _overlap_s(form: Form) -> int:
    """Return the overlap that was chosen.

    Raises:
        InvalidInput: It is none of those on the page.
    """
    for seconds, _ in _OVERLAPS:
        if form.given("overlap_s") == str(seconds):
            return seconds
    raise InvalidInput("Choose how long the key stays valid.", field="overlap_s")


async def rotate(request: Request) -> Response:
    """Replace a key. The successor's secret is on the page that answers, and nowhere else."""
    form, key_id = await read_form(request), request.path_params["key"]
    try:
        made = await client_of(request).keys.rotate(key_id, build(KeyRotate, {"overlap_s": _overlap_s(form)}))
    except Rejected as error:
        return see_other(request, "/keys", flash=error.message, kind="bad")
    return render(request, "keys/secret.html", made=made)


async def revoke(request: Request) -> Response:
    """Revoke a key."""
    calls, key_id = client_of(request).keys, request.path_params["key"]
    return await act(
        request, "/keys", lambda: calls.revoke(key_id), "The key is revoked; the API refuses it within seconds."
    )


PAGE = PageModule(
    routes=(
        Route("/keys", show_list, methods=["GET", "POST"]),
        Route("/keys/{key:id}/rotate", rotate, methods=["POST"]),
        Route("/keys/{key:id}/revoke", revoke, methods=["POST"]),
    ),
    nav=(NavEntry("Account", "Keys", "/keys", "keys", key="y", scope="keys"),),
)
