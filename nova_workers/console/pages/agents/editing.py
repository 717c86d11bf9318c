"""An agent's configuration: as a form and as JSON, new and changed, with conflicts."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Conflict, Forbidden, InvalidInput, LimitExceeded, Rejected, VersionMismatch
from nova_workers.client.client import NovaClient
from nova_workers.console.diffs import FieldDiff, field_diffs
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.navigation import id_given
from nova_workers.console.pages.agents.fields import (
    Choices,
    agent_shape,
    form_root,
    load_choices,
    section_of,
    sections_of,
)
from nova_workers.console.pages.agents.prompting import shown_prompt
from nova_workers.console.rendering import render, see_other
from nova_workers.console.schema_forms import edited, read_value, split_errors
from nova_workers.console.state import client_of
from nova_workers.contracts.http.wire import AgentCreate, AgentPatch, AgentReplace, AgentView

MAX_FIELDS = 20_000
"""A configuration at all its limits has some thousand fields."""

SHOW_PROMPT = "prompt"
"""The button that shows the prompt of the form as it stands."""

_REFUSALS = (InvalidInput, Conflict, Forbidden, LimitExceeded)


@dataclass(frozen=True, slots=True)
class Clash:
    """Another person or agent saved a version while this form was open.

    Attributes:
        newest: What they saved.
        theirs: What they changed since the version that the form began with.
        yours: What this form would change in theirs.
        merged: Whether the fields that this form did not change have theirs now.
    """

    newest: AgentView
    theirs: list[FieldDiff]
    yours: list[FieldDiff]
    merged: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """A configuration in the form.

    Attributes:
        version: The version that it began with; None for a new agent.
        errors: By path.
        is_checked: Whether all that a save would refuse is shown, though nothing is saved.
    """

    value: Mapping[str, object]
    version: int | None = None
    new_id: str = ""
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str | None = None
    clash: Clash | None = None
    is_checked: bool = False


async def show(request: Request) -> Response:
    """Show the form of an agent."""
    client = client_of(request)
    agent, choices = await asyncio.gather(client.agents.get(request.path_params["agent"]), load_choices(client))
    return await _form_page(request, agent, choices, Draft(_value_of(agent), agent.version))


async def show_new(request: Request) -> Response:
    """Show the form of a new agent; with `from`, a copy of another."""
    client = client_of(request)
    source = id_given(request.query_params.get("from"))
    choices = await load_choices(client)
    value = {} if source is None else _value_of(await client.agents.get(source))
    return await _form_page(request, None, choices, Draft(value))


async def create(request: Request) -> Response:
    """Make an agent of the form, or change rows of the form."""
    client = client_of(request)
    form = await read_form(request, max_fields=MAX_FIELDS)
    choices = await load_choices(client)
    draft = _read_draft(form, choices)
    if draft.errors or form.given("do"):
        return await _form_page(request, None, choices, draft)
    new_id = draft.new_id.strip()
    try:
        made = await client.agents.create(build(AgentCreate, {**draft.value, "id": new_id}))
    except _REFUSALS as error:
        return await _form_page(request, None, choices, _refused(draft, error))
    return see_other(request, f"/agents/{made.id}", flash=f"Agent {made.id} is made.")


async def save(request: Request) -> Response:
    """Write a version from the form, or change rows of the form."""
    client = client_of(request)
    form = await read_form(request, max_fields=MAX_FIELDS)
    agent_id: str = request.path_params["agent"]
    agent, choices = await asyncio.gather(client.agents.get(agent_id), load_choices(client))
    draft = _read_draft(form, choices)
    if draft.errors or form.given("do"):
        return await _form_page(request, agent, choices, draft)
    release = form.given("release") != "no"
    written = await _write(client, agent_id, draft, merge=True, release=release)
    if isinstance(written, Draft):
        return await _form_page(request, agent, choices, written)
    return _saved(request, agent, written, f"/agents/{agent_id}", release=release)


async def show_json(request: Request) -> Response:
    """Show an agent's configuration as JSON."""
    agent = await client_of(request).agents.get(request.path_params["agent"])
    return _json_page(request, agent, Draft({}, agent.version), _as_json(_value_of(agent)))


async def save_json(request: Request) -> Response:
    """Write a version from JSON."""
    client = client_of(request)
    form = await read_form(request)
    agent_id: str = request.path_params["agent"]
    agent = await client.agents.get(agent_id)
    text, draft = form.value("text"), Draft({}, _number(form.given("version")))
    try:
        value = json.loads(text)
    except ValueError as error:
        return _json_page(request, agent, Draft({}, draft.version, problem=f"This is not JSON: {error}."), text)
    if not isinstance(value, dict):
        return _json_page(request, agent, Draft({}, draft.version, problem="This is not a JSON object."), text)
    draft = Draft(cast(dict[str, object], value), draft.version)
    release = form.given("release") != "no"
    written = await _write(client, agent_id, draft, merge=False, release=release)
    if isinstance(written, Draft):
        return _json_page(request, agent, written, text)
    return _saved(request, agent, written, f"/agents/{agent_id}/json", release=release)


async def _write(client: NovaClient, agent_id: str, draft: Draft, *, merge: bool, release: bool) -> AgentView | Draft:
    """Return the version that was written, or the draft with what was refused.

    Args:
        merge: See `_clash`.
        release: Whether the version becomes the current one. Otherwise it changes nothing that another could have
            changed meanwhile.
    """
    try:
        if not release:
            whole = build(AgentReplace, draft.value)
            return await client.agents.save_version(agent_id, build(AgentPatch, whole.model_dump()))
        return await client.agents.replace(agent_id, build(AgentReplace, draft.value), if_version=draft.version)
    except VersionMismatch:
        return await _clash(client, agent_id, draft, merge=merge)
    except _REFUSALS as error:
        return _refused(draft, error)


async def _clash(client: NovaClient, agent_id: str, draft: Draft, *, merge: bool) -> Draft:
    """Return the draft with what others saved since it began. Saving it again then writes over that.

    With `merge`, fields that the draft did not change get what others made of them.
    """
    newest = await client.agents.get(agent_id)
    base = newest if draft.version is None else await client.agents.version(agent_id, draft.version)
    was, now = _value_of(base), _value_of(newest)
    mine: dict[str, object] = build(AgentReplace, draft.value).model_dump(mode="json")
    if merge:
        mine = {name: now[name] if value == was[name] else value for name, value in mine.items()}
    clash = Clash(newest, field_diffs(was, now), field_diffs(now, mine), merged=merge)
    return Draft(mine if merge else draft.value, newest.version, clash=clash)


def _read_draft(form: Form, choices: Choices) -> Draft:
    """Return the draft in the form, after a button for its rows was pressed."""
    action = form.given("do")
    if action and action != SHOW_PROMPT:
        form = edited(form, action)
    granted = {
        name.removeprefix("capabilities.").removesuffix("@on"): None
        for name in form.values
        if name.startswith("capabilities.") and name.count(".") == 1 and name.endswith("@on")
    }
    reading = read_value(agent_shape(choices, {"capabilities": granted}), form)
    problem = "Some fields cannot be read." if reading.errors and not action else None
    return Draft(
        cast(Mapping[str, object], reading.value),
        _number(form.given("@version")),
        form.value("@id"),
        {} if action and action != SHOW_PROMPT else reading.errors,
        problem,
        is_checked=action == SHOW_PROMPT,
    )


def _refused(draft: Draft, error: Rejected) -> Draft:
    form = Form().refused(error)
    return Draft(draft.value, draft.version, draft.new_id, form.errors, error.message)


async def _form_page(request: Request, agent: AgentView | None, choices: Choices, draft: Draft) -> Response:
    root = form_root(choices, draft.value)
    prompt = await shown_prompt(client_of(request), agent.id if agent else draft.new_id, draft.value)
    errors, rest = split_errors(root, {**(prompt.errors if draft.is_checked else {}), **draft.errors})
    status = 409 if draft.clash else 422 if draft.problem else 200
    return render(
        request,
        "agents/form.html",
        status=status,
        agent=agent,
        draft=draft,
        sections=sections_of(root, errors),
        errors=errors,
        rest=rest,
        prompt=prompt,
        warnings=[(section_of(warning.field), warning) for warning in prompt.warnings],
        away=(await client_of(request).agents.tool_servers(agent.id)).away if agent else [],
    )


def _json_page(request: Request, agent: AgentView, draft: Draft, text: str) -> Response:
    status = 409 if draft.clash else 422 if draft.problem else 200
    return render(request, "agents/json.html", status=status, agent=agent, draft=draft, text=text)


def _saved(request: Request, before: AgentView, after: AgentView, path: str, *, release: bool) -> Response:
    if not release:
        kept = f"Version {after.version} is saved. No conversation uses it until it is rolled out."
        return see_other(request, f"/agents/{after.id}/versions", flash=kept)
    if after.version == before.version:
        return see_other(request, path, flash="Nothing was changed, so there is no new version.")
    return see_other(request, path, flash=f"Version {after.version} is saved. Runs that begin from now on use it.")


def _value_of(agent: AgentView) -> dict[str, object]:
    return agent.spec.model_dump(mode="json")


def _as_json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
