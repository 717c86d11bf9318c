"""``/v1/export`` and ``/v1/import``: export and import of a tenant as a stream of rows."""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.archive import MEDIA_TYPE, ImportResult
from nova_workers.domain.agents.rules.authors import Authored, check_author, check_steers, holdings_of
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.archive.rules.exporting import export_archive
from nova_workers.domain.archive.rules.importing import import_archive
from nova_workers.domain.archive.rules.rows import AgentChecks
from nova_workers.domain.audit.sql.listing import record_act
from nova_workers.domain.tenants.sql.settings import get_ceilings
from nova_workers.ledger.auditing import acting_as

from ...auth import Caller, WorkspaceCaller
from ...errors import BodyTooLarge, MalformedRequest, UnsupportedMediaType
from ...guard.archives import ArchiveResponse, received
from ...json_body import parse_json
from ...openapi import json_lines, problems
from ...params import Flag
from ...state import CAPABILITIES, State

router = APIRouter(prefix="/v1", tags=["archive"])

_MAX_LINE_BYTES = 128 * 1024 * 1024
"""A file that an agent sent is one line, twice as long as the file."""


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=problems(409, 429) | json_lines(MEDIA_TYPE),
)
async def export_workspace(caller: WorkspaceCaller, state: State) -> Response:
    """Export all that the tenant keeps, as of one moment, in lines of JSON.

    Needs the scopes `workspace`, `agents` and `runs`. With the scope `secrets` it has the names of secrets, never
    their values. The last line is of the table `end`; without it the archive is incomplete. `nova export` makes a
    folder.
    """
    _need_all(caller)
    services = state.services
    with ExitStack() as held:
        held.enter_context(state.archives.hold(caller.tenant_id))
        with acting_as(caller.actor()):
            async with services.database.connection() as connection:
                asked = {"secrets": caller.may("secrets")}
                await record_act(connection, "archive.exported", "archive", caller.tenant_id, asked)
        lines = export_archive(services.archive_database, caller.tenant_id, with_secrets=caller.may("secrets"))
        # The first line, before the answer begins: an unavailable database is a 503 and not a cut connection.
        first = await anext(lines)
        return ArchiveResponse(first, lines, held=held.pop_all(), settings=services.settings.api)


@router.post(
    "/import",
    responses=problems(409, 429, body=True),
    openapi_extra={
        "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
    },
    dependencies=[CAPABILITIES],
)
async def import_workspace(
    request: Request,
    caller: WorkspaceCaller,
    state: State,
    merge: Annotated[
        Flag, Query(description="Skip rows that exist already. Without it, one such row refuses the archive.")
    ] = False,
) -> ImportResult:
    """Import an archive, whole or not at all.

    Needs the scopes `workspace`, `agents` and `runs`; for agents with more trust than `controlled`, or with
    directories, also `trust`; for agents that use secrets, also `secrets`; likewise for skills of such agents, and for
    files of these. Ids are kept. Default agents that were neither changed nor used are replaced. `nova import` sends a
    folder.
    """
    _need_all(caller)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != MEDIA_TYPE:
        raise UnsupportedMediaType(f"The body is {media_type!r}; send it as Content-Type: {MEDIA_TYPE}.")
    services = state.services
    async with services.database.connection() as connection:
        ceilings = await get_ceilings(connection, caller.tenant_id)
    rules, grants, rights = CeilingRules.of(services.settings), services.capabilities, caller.author

    def validate(spec: AgentSpec) -> None:
        grants.validate(spec)
        rules.check(caller.tenant_id, spec, ceilings, grants=grants)

    def check_version(at: str, spec: AgentSpec) -> None:
        check_author(rights, Authored(spec, grants=grants, at=at))

    def check_skills_of(agent_id: str, spec: AgentSpec) -> None:
        check_steers(rights, holdings_of(spec, grants), field="skills", what=f"the agent {agent_id!r}")

    with state.archives.hold(caller.tenant_id):
        return await import_archive(
            services.archive_work,
            caller.tenant_id,
            _lines(received(request, services.settings.api)),
            merge=merge,
            agents=AgentChecks(validate, check_version),
            check_steers=check_skills_of,
            with_effects=services.settings.effects.enabled,
        )


def _need_all(caller: Caller) -> None:
    caller.need("agents")
    caller.need("runs")


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[Any, int]]:
    """Yield each parsed line of a body, and its size."""
    rest = bytearray()
    number = 0
    async for piece in pieces:
        rest += piece
        if b"\n" not in piece:
            if len(rest) > _MAX_LINE_BYTES:
                raise BodyTooLarge(f"A line has more than {_MAX_LINE_BYTES:,} bytes.", max_bytes=_MAX_LINE_BYTES)
            continue
        *whole, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in whole:
            number += 1
            if line.strip():
                yield _parse(line, number), len(line)
    if rest.strip():
        yield _parse(bytes(rest), number + 1), len(rest)


def _parse(line: bytes, number: int) -> Any:
    try:
        return parse_json(line)
    except MalformedRequest as error:
        raise MalformedRequest(f"Line {number} of the archive: {error.message}") from error
