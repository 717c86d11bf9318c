"""Notes: list, editor with a preview, and the note as it reads."""

import asyncio

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from nova_workers.base.errors import Rejected, VersionMismatch
from nova_workers.client.resources.notes import Notes
from nova_workers.console.access import agent_choices
from nova_workers.console.actions import Done, act
from nova_workers.console.forms import Form, build, changes, read_form
from nova_workers.console.markdown import to_html
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render, render_long, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.notes import NoteCreate, NotePatch, NoteView

_FLAGS = {"yes": True, "no": False}


async def show_list(request: Request) -> Response:
    """Show a page of notes, newest first."""
    page = await client_of(request).notes.list(
        agent_id=filter_of(request, "agent"),
        pinned=_FLAGS.get(filter_of(request, "pinned") or ""),
        shared=_FLAGS.get(filter_of(request, "shared") or ""),
        limit=PAGE_SIZE,
        cursor=cursor_of(request),
    )
    return render(request, "notes/list.html", notes=page.items, pager=pager(request, page))


async def new(request: Request) -> Response:
    """Show the editor with an empty note, and create what was written."""
    form = Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            note = await client_of(request).notes.create(
                build(NoteCreate, {"agent_id": form.given("agent_id"), **_of(form)})
            )
        except Rejected as error:
            form = form.refused(error)
        else:
            return see_other(request, f"/notes/{note.id}", flash="The note was saved.")
    return _editor(request, form, note=None, agents=await agent_choices(client_of(request)))


async def show(request: Request) -> Response:
    """Show a note as it reads."""
    note = await client_of(request).notes.get(request.path_params["note"])
    return await render_long(request, "notes/show.html", note=note)


async def edit(request: Request) -> Response:
    """Show the editor with a note, and save what was written."""
    client, note_id, form = client_of(request), request.path_params["note"], Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            await _save(client.notes, note_id, form)
        except VersionMismatch as error:
            return _editor(request, form.refused(error), note=await client.notes.get(note_id), is_conflict=True)
        except Rejected as error:
            form = form.refused(error)
        else:
            return see_other(request, f"/notes/{note_id}", flash="The note was saved.")
    return _editor(request, form, note=await client.notes.get(note_id))


async def _save(notes: Notes, note_id: str, form: Form) -> None:
    change = changes(NotePatch, await notes.get(note_id), _of(form))
    known = build(NotePatch, {"updated_at": form.given("updated_at")}).updated_at
    if change.model_fields_set:
        await notes.patch(note_id, change.model_copy(update={"updated_at": known}))


async def delete(request: Request) -> Response:
    """Delete a note."""
    calls, note_id = client_of(request).notes, request.path_params["note"]
    deleted = Done("The note was deleted.", "/notes")
    return await act(request, f"/notes/{note_id}", lambda: calls.delete(note_id), deleted)


async def preview(request: Request) -> Response:
    """Return Markdown as HTML, for the preview beside an editor."""
    form = await read_form(request)
    return HTMLResponse(await asyncio.to_thread(to_html, form.value("content")))


def _editor(
    request: Request,
    form: Form,
    *,
    note: NoteView | None,
    agents: list[tuple[str, str]] | None = None,
    is_conflict: bool = False,
) -> Response:
    return render(
        request,
        "notes/edit.html",
        status=409 if is_conflict else 422 if form.problem else 200,
        form=form,
        note=note,
        is_conflict=is_conflict,
        agents=agents,
        shared="shared" in form.values if form.values else note is None or note.shared,
        pinned="pinned" in form.values if form.values else note is not None and note.pinned,
    )


def _of(form: Form) -> dict[str, object]:
    return {
        "title": form.value("title"),
        "content": form.value("content"),
        "shared": "shared" in form.values,
        "pinned": "pinned" in form.values,
    }


PAGE = PageModule(
    routes=(
        Route("/notes", show_list),
        Route("/notes/new", new, methods=["GET", "POST"]),
        Route("/notes/preview", preview, methods=["POST"]),
        Route("/notes/{note:id}", show),
        Route("/notes/{note:id}/edit", edit, methods=["GET", "POST"]),
        Route("/notes/{note:id}/delete", delete, methods=["POST"]),
    ),
    nav=(NavEntry("Build", "Notes", "/notes", "notes", key="n", id_prefix="note_", scope="workspace:read"),),
)
