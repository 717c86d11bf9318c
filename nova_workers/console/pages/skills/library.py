"""Skills: the library, a skill with its text and files, adding and replacing by text, files or a folder."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Conflict, InvalidInput, LimitExceeded, Rejected
from nova_workers.base.validation import ACCEPTED_FORMS
from nova_workers.client.client import NovaClient
from nova_workers.client.paging import iterate
from nova_workers.console.access import if_allowed
from nova_workers.console.actions import Done, act
from nova_workers.console.forms import Form, read_form
from nova_workers.console.pages.skills.files import (
    Upload,
    content_of,
    merged,
    name_in,
    read_uploads,
    shown_text,
    text_below_front,
)
from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render, render_long, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.skills import SKILL_NAME_PATTERN, SkillDetail, SkillFilePut, SkillPut

_AGENTS = 200
_EXAMPLE: Final = """\
---
name: my-skill
description: What it does, and when an agent should use it.
---
# Instructions

"""


async def show_list(request: Request) -> Response:
    """Show a page of the library."""
    page = await client_of(request).skills.list(limit=PAGE_SIZE, cursor=cursor_of(request))
    return render(request, "skills/list.html", skills=page.items, pager=pager(request, page))


async def show(request: Request) -> Response:
    """Show a skill: its text, its files, and the agents that have it."""
    client, name = client_of(request), request.path_params["skill"]
    skill, agents = await asyncio.gather(client.skills.get(name), if_allowed(_agents_with(client, name), None))
    return await render_long(
        request, "skills/show.html", skill=skill, text=text_below_front(skill.skill_md), agents=agents
    )


async def show_file(request: Request) -> Response:
    """Show a file of a skill as text; with `download`, or if it is none, send it."""
    name, path = request.path_params["skill"], request.query_params.get("path", "")
    file = await client_of(request).skills.file(name, path)
    content = content_of(file)
    text = None if request.query_params.get("download") else shown_text(content)
    if text is None:
        return Response(
            content,
            media_type="application/octet-stream",
            headers={"content-disposition": f"attachment; filename*=utf-8''{quote(path.rpartition('/')[2])}"},
        )
    return render(request, "skills/file.html", name=name, file=file, text=text)


async def show_new(request: Request) -> Response:
    """Show the form of a new skill."""
    return _form_page(request, None, Form(), 200)


async def show_edit(request: Request) -> Response:
    """Show the form of a skill."""
    return _form_page(request, await client_of(request).skills.get(request.path_params["skill"]), Form(), 200)


async def create(request: Request) -> Response:
    """Add a skill."""
    uploads = await read_uploads(request)
    form = await read_form(request)
    return await _put(request, None, form, uploads, ())


async def replace(request: Request) -> Response:
    """Replace a skill: its text, with the files that stay and those that were uploaded."""
    uploads = await read_uploads(request)
    form = await read_form(request)
    client, name = client_of(request), request.path_params["skill"]
    skill = await client.skills.get(name)
    dropped = set(form.list("drop"))
    stay = [] if uploads.is_folder else [file for file in skill.files if file.path not in dropped]
    files = await asyncio.gather(*(client.skills.file(name, file.path) for file in stay))
    kept = [
        SkillFilePut(path=file.path, content_base64=file.content_base64, executable=file.executable) for file in files
    ]
    return await _put(request, skill, form, uploads, kept)


async def delete(request: Request) -> Response:
    """Delete a skill that no agent has."""
    name: str = request.path_params["skill"]
    calls = client_of(request).skills
    deleted = Done(f"Skill {name} is deleted.", "/skills")
    return await act(request, f"/skills/{name}", lambda: calls.delete(name), deleted)


async def _put(
    request: Request, skill: SkillDetail | None, form: Form, uploads: Upload, kept: Sequence[SkillFilePut]
) -> Response:
    text = uploads.skill_md or form.value("skill_md")
    shown = Form({**form.values, "skill_md": text}, form.lists)
    name = name_in(text)
    problem = uploads.problem
    if problem is None and name is None:
        problem = (
            "The front matter of SKILL.md has no name. Begin with a line ---, a line name: my-skill, and a line ---."
        )
    elif problem is None and name is not None and not re.fullmatch(SKILL_NAME_PATTERN, name):
        problem = f"The name is {name!r}; {ACCEPTED_FORMS[SKILL_NAME_PATTERN]}."
    elif problem is None and skill is not None and name != skill.name:
        problem = f"The text names the skill {name!r}, and this is {skill.name!r}. Add it as a new skill instead."
    if problem is not None or name is None:
        return _form_page(request, skill, Form(shown.values, shown.lists, {"skill_md": problem or ""}), 422)
    try:
        body = SkillPut(skill_md=text, files=merged(kept, uploads.files))
        saved = await client_of(request).skills.put(name, body)
    except (InvalidInput, Conflict, LimitExceeded) as error:
        return _form_page(request, skill, _refused(shown, error), 422)
    return see_other(
        request, f"/skills/{saved.name}", flash=f"Skill {saved.name} is saved. Agents read it from now on."
    )


def _refused(form: Form, error: Rejected) -> Form:
    refused = form.refused(error)
    if "skill_md" in refused.errors:
        return Form(form.values, form.lists, refused.errors)
    return Form(form.values, form.lists, {}, error.message)


def _form_page(request: Request, skill: SkillDetail | None, form: Form, status: int) -> Response:
    text = _EXAMPLE if skill is None else skill.skill_md
    return render(request, "skills/form.html", status=status, skill=skill, form=form, text=text)


async def _agents_with(client: NovaClient, name: str) -> list[str]:
    """Return the agents that have a skill."""
    return [agent.id async for agent in iterate(client.agents.list, limit=_AGENTS) if name in agent.spec.skills]
