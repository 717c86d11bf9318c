"""Renaming and deleting an agent."""

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Conflict, InvalidInput
from nova_workers.console.actions import Done, act
from nova_workers.console.forms import Form, read_form
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of


async def show(request: Request) -> Response:
    """Show both forms."""
    return await _page(request, Form(), 200)


async def rename(request: Request) -> Response:
    """Give the agent another id."""
    form = await read_form(request)
    agent_id, to = request.path_params["agent"], form.given("to")
    if to is None:
        return await _page(request, Form(form.values, errors={"to": "Enter the new id."}), 422)
    try:
        renamed = await client_of(request).agents.rename(agent_id, to)
    except (InvalidInput, Conflict) as error:
        refused = form.refused(error)
        return await _page(request, Form(form.values, errors={"to": refused.errors.get("to", error.message)}), 422)
    if renamed.state == "done":
        text = f"{renamed.former_id} is now {renamed.id}."
    else:
        text = f"{renamed.former_id} is becoming {renamed.id}: {renamed.threads_left} threads are still to move."
    if renamed.settings:
        text += f" Name the new id in {', '.join(renamed.settings)} and restart the workers."
    return see_other(request, f"/agents/{renamed.id}/manage", flash=text, kind="warn" if renamed.settings else "good")


async def delete(request: Request) -> Response:
    """Delete the agent, if its id was typed."""
    form = await read_form(request)
    agent_id: str = request.path_params["agent"]
    if form.given("typed") != agent_id:
        errors = {"typed": f"Type {agent_id} to delete the agent."}
        return await _page(request, Form(form.values, errors=errors), 422)
    calls = client_of(request).agents
    deleted = Done(f"Agent {agent_id} is deleted. Its threads stay readable.", "/agents")
    return await act(request, f"/agents/{agent_id}/manage", lambda: calls.delete(agent_id), deleted)


async def _page(request: Request, form: Form, status: int) -> Response:
    agent = await client_of(request).agents.get(request.path_params["agent"])
    return render(request, "agents/manage.html", status=status, agent=agent, form=form)
