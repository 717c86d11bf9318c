"""Secrets: names, setting values, deleting, and the operator's rotation. No page contains a value."""

import asyncio
import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import InvalidInput, Rejected
from nova_workers.base.validation import ACCEPTED_FORMS
from nova_workers.console.actions import Done, act
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.secrets import SECRET_NAME_PATTERN, SecretPut, SecretRotation


async def show(request: Request) -> Response:
    """Show the names, and the form for a value; with `name`, to replace that one's."""
    return await _page(request, Form({"name": request.query_params.get("name", "")}), 200)


async def put(request: Request) -> Response:
    """Set a value."""
    form = await read_form(request)
    # Only the name and the description are ever shown again.
    shown = Form({name: form.value(name) for name in ("name", "description")})
    name, value = form.given("name"), form.value("value")
    errors = _missing(name, value)
    if name is None or errors:
        return await _page(request, Form(shown.values, errors=errors), 422)
    description = form.given("description")
    try:
        secret = build(SecretPut, {"value": value, **({} if description is None else {"description": description})})
        await client_of(request).secrets.put(name, secret)
    except InvalidInput as error:
        return await _page(request, shown.refused(error), 422)
    except Rejected as error:
        return await _page(request, Form(shown.values, problem=error.message), 409)
    return see_other(request, "/secrets", flash=f"{name} is set.")


async def delete(request: Request) -> Response:
    """Delete a secret."""
    name: str = request.path_params["name"]
    calls = client_of(request).secrets
    return await act(request, "/secrets", lambda: calls.delete(name), f"{name} is deleted.")


async def rotate(request: Request) -> Response:
    """Encrypt what is under other master keys with the current one."""
    return await act(request, "/secrets", client_of(request).secrets.rotate, _rotated)


def _rotated(result: SecretRotation) -> Done:
    text = f"{result.rotated} encrypted with the key {result.key_id}; {result.remaining} remain under other keys."
    if result.unreadable:
        text += f" {result.unreadable} cannot be decrypted; the API's log names them."
    return Done(text, kind="warn" if result.remaining else "good")


def _missing(name: str | None, value: str) -> dict[str, str]:
    """Return the problems with a name, which goes into the address of the API's request, and with an empty value."""
    errors = {} if value else {"value": "Enter the value."}
    if name is None or not re.fullmatch(SECRET_NAME_PATTERN, name):
        errors["name"] = f"The name is {name or ''!r}; {ACCEPTED_FORMS[SECRET_NAME_PATTERN]}."
    return errors


async def _page(request: Request, form: Form, status: int) -> Response:
    client = client_of(request)
    page, caller = await asyncio.gather(
        client.secrets.list(limit=PAGE_SIZE, cursor=cursor_of(request)), client.whoami()
    )
    return render(
        request,
        "secrets/list.html",
        status=status,
        secrets=page.items,
        pager=pager(request, page),
        form=form,
        is_operator="operator" in caller.scopes,
    )


PAGE = PageModule(
    routes=(
        Route("/secrets", show, methods=["GET"]),
        Route("/secrets", put, methods=["POST"]),
        Route("/secrets/~rotate", rotate, methods=["POST"]),
        Route("/secrets/{name:id}/delete", delete, methods=["POST"]),
    ),
    nav=(NavEntry("Account", "Secrets", "/secrets", "secrets", scope="secrets"),),
)
