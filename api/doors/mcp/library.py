"""What a client may read beside runs: threads, notes and files as resources, skills as prompts."""

import re
from base64 import b64encode
from typing import Final, Literal

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    BlobResourceContents,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from nova_workers.contracts.http.scopes import Scope
from nova_workers.domain.files import rules as files
from nova_workers.domain.files.sql import list_files
from nova_workers.domain.notes import rules as notes
from nova_workers.domain.notes.sql import list_notes
from nova_workers.domain.skills import sql as skills
from nova_workers.domain.threads.sql import lineage
from nova_workers.domain.threads.sql.lists import ThreadFilter, list_threads
from nova_workers.domain.threads.sql.records import get_thread

from .protocol import Context, paging
from .runs import Runs, runs_of

Kind = Literal["threads", "notes", "files"]

_MARKDOWN = "text/markdown"
_MAX_MESSAGES = 500
_PAGE = 50
_SCOPES: Final[dict[Kind, Scope]] = {"threads": "runs", "notes": "workspace", "files": "workspace"}
_URI = re.compile(r"nova://(threads|notes|files)/([A-Za-z0-9_-]{1,80})\Z")
_ABOUT: Final[dict[Kind, tuple[str, str | None]]] = {
    "threads": ("A conversation with an agent.", _MARKDOWN),
    "notes": ("A document that an agent wrote.", _MARKDOWN),
    "files": ("A file that an agent sent.", None),
}
_TASK = "task"


async def list_resource_templates(context: Context, _: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    """Answer ``resources/templates/list``."""
    runs = runs_of(context)
    return ListResourceTemplatesResult(
        resource_templates=[
            ResourceTemplate(name=kind, uri_template=f"nova://{kind}/{{id}}", description=about, mime_type=media_type)
            for kind, (about, media_type) in _ABOUT.items()
            if runs.may(_SCOPES[kind])
        ]
    )


async def list_resources(context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
    """Answer ``resources/list``: conversations, then notes, then files, of each the newest first.

    Raises:
        InvalidCursor: The cursor is none of this list.
    """
    runs = runs_of(context)
    kinds: list[Kind] = [kind for kind, scope in _SCOPES.items() if runs.may(scope)]
    listing = paging(params, _PAGE).of_pairs(runs.caller.tenant_id, "mcp_resources", str, str)
    kind, before = (kinds[0] if kinds else None, None) if listing.key is None else (listing.key[0], listing.key[1])
    if kind not in kinds:
        return ListResourcesResult(resources=[])
    found = await _list(runs, kind, before or None, listing.rows)
    # A page has one kind; its end is the beginning of the next kind.
    if len(found) > _PAGE:
        cursor = listing.pager.write((kind, found[_PAGE - 1].uri.rpartition("/")[2]))
    elif kind != kinds[-1]:
        cursor = listing.pager.write((kinds[kinds.index(kind) + 1], ""))
    else:
        cursor = None
    return ListResourcesResult(resources=found[:_PAGE], next_cursor=cursor)


async def read_resource(context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    """Answer ``resources/read``.

    Raises:
        NotFound: There is no such resource.
        Forbidden: The key may not read resources of this kind.
    """
    runs = runs_of(context)
    match = _URI.match(params.uri)
    if match is None:
        raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": params.uri[:200]})
    kind, resource_id = match.groups()
    tenant_id, database = runs.caller.tenant_id, runs.state.services.database
    runs.need("runs" if kind == "threads" else "workspace")
    if kind == "threads":
        return _text(params.uri, await _transcript(runs, resource_id))
    if kind == "notes":
        return _text(params.uri, (await notes.get_note(database, tenant_id, resource_id)).content)
    file, content = await files.read_file(database, tenant_id, resource_id)
    blob = BlobResourceContents(uri=params.uri, mime_type=file.media_type, blob=b64encode(content).decode("ascii"))
    if not file.media_type.startswith("text/"):
        return ReadResourceResult(contents=[blob])
    try:
        return _text(params.uri, content.decode(), file.media_type)
    except UnicodeDecodeError:
        return ReadResourceResult(contents=[blob])


async def list_prompts(context: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
    """Answer ``prompts/list``: the skills of the library, by name.

    Raises:
        InvalidCursor: The cursor is none of this list.
    """
    runs = runs_of(context)
    if not runs.may("workspace"):
        return ListPromptsResult(prompts=[])
    listing = paging(params, _PAGE).of(runs.caller.tenant_id, "mcp_prompts", str)
    async with runs.state.services.database.connection() as connection:
        rows = await skills.list_skills(connection, runs.caller.tenant_id, after=listing.key, limit=listing.rows)
    page = listing.page(rows, lambda skill: skill.name)
    task = PromptArgument(name=_TASK, description="What to do with it.", required=False)
    return ListPromptsResult(
        prompts=[Prompt(name=skill.name, description=skill.description, arguments=[task]) for skill in page.items],
        next_cursor=page.next_cursor,
    )


async def get_prompt(context: Context, params: GetPromptRequestParams) -> GetPromptResult:
    """Answer ``prompts/get``: the text of a skill, and the task.

    Raises:
        NotFound: There is no such skill.
        Forbidden: The key may not read skills.
    """
    runs = runs_of(context)
    runs.need("workspace")
    async with runs.state.services.database.connection() as connection:
        skill = await skills.get_skill(connection, runs.caller.tenant_id, params.name)
    texts = [skill.skill_md, *filter(None, [(params.arguments or {}).get(_TASK)])]
    return GetPromptResult(
        description=skill.description,
        messages=[PromptMessage(role="user", content=TextContent(text=text)) for text in texts],
    )


async def _list(runs: Runs, kind: Kind, before: str | None, limit: int) -> list[Resource]:
    tenant_id = runs.caller.tenant_id
    async with runs.state.services.database.connection() as connection:
        if kind == "threads":
            threads = await list_threads(connection, tenant_id, ThreadFilter(), before=before, limit=limit)
            return [
                _resource(kind, thread.id, thread.title or thread.opening or thread.id, f"With {thread.agent_id}.")
                for thread in threads
            ]
        if kind == "notes":
            listed = await list_notes(connection, tenant_id, before=before, limit=limit)
            return [_resource(kind, note.id, note.title, f"By {note.agent_id}.") for note in listed]
        sent = await list_files(connection, tenant_id, before=before, limit=limit)
        return [
            _resource(kind, file.id, file.name, file.caption, media_type=file.media_type, size=file.size_bytes)
            for file in sent
        ]


def _resource(
    kind: Kind,
    resource_id: str,
    name: str,
    about: str | None,
    *,
    media_type: str = _MARKDOWN,
    size: int | None = None,
) -> Resource:
    uri = f"nova://{kind}/{resource_id}"
    return Resource(uri=uri, name=name, description=about, mime_type=media_type, size=size)


async def _transcript(runs: Runs, thread_id: str) -> str:
    """Return the texts of a conversation in markdown, the first ones of a long one."""
    tenant_id = runs.caller.tenant_id
    async with runs.state.services.database.connection() as connection:
        thread = await get_thread(connection, tenant_id, thread_id)
        messages = await lineage.list_messages(connection, tenant_id, thread_id, after=None, limit=_MAX_MESSAGES)
    parts = [f"# {thread.title or thread.id}"]
    for message, _ in messages:
        text = "\n\n".join(block["text"] for block in message.content if block.get("type") == "text")
        if text.strip():
            parts.append(f"**{message.role}**\n\n{text}")
    return "\n\n".join(parts)


def _text(uri: str, text: str, media_type: str = _MARKDOWN) -> ReadResourceResult:
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=media_type, text=text)])
