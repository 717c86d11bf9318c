"""`nova audit`: what was changed, and by whom."""

import re
from collections.abc import AsyncIterable
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, remote
from nova_workers.cli.resources import group
from nova_workers.cli.terminal.new_file import new_file
from nova_workers.cli.terminal.paging import Column, CursorOption, LimitOption, Rows, show_page
from nova_workers.client.audit_chain import check_chain
from nova_workers.contracts.http.overview.audit import AuditEventView
from nova_workers.contracts.http.overview.audit_words import describe_action

app = group("See what was changed, and by whom. Without a command: list.", lists=True)

TenantOption = Annotated[str | None, typer.Option(help="Another tenant's log; needs the scope operator.")]
_STDOUT = "-"


@remote(app, "list")
async def list_audit(
    session: Session,
    actor: Annotated[str | None, typer.Option(help="Only what this key or agent did: its id.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this, such as agent.updated.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only things of this kind, such as agent.")] = None,
    target: Annotated[str | None, typer.Option(help="Only the things with this id.")] = None,
    days: Annotated[float | None, typer.Option(min=0.0, max=3_650.0, help="Only the last days.")] = None,
    tenant: TenantOption = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all records to a new file, one JSON object a line, in the order of their chain; - is standard "
            "output. Takes the filters above.",
        ),
    ] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """Show what was changed, newest first: who, what, which thing, and from where."""
    since = None if days is None else datetime.now(UTC) - timedelta(days=days)
    log = session.client.audit
    if export is not None:
        records = log.export(actor=actor, action=action, target_kind=kind, target=target, since=since, tenant=tenant)
        async with aclosing(records):
            await _write(session, export, records)
        return
    page = await log.list(
        actor=actor,
        action=action,
        target_kind=kind,
        target=target,
        since=since,
        tenant=tenant,
        limit=limit,
        cursor=cursor,
    )
    show_page(session.out, page, _ROWS)


@remote(app, "verify")
async def verify(
    session: Session,
    tenant: TenantOption = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="SEQ:HASH", help="A head that was kept elsewhere, such as from a webhook: it must be in the chain."
        ),
    ] = None,
) -> None:
    """Check the chain over all records, and name the first one that does not fit. Exits with 1 if there is one.

    Every hash is computed here, from the records themselves.
    """
    kept = None if head is None else _read_head(head)
    log = session.client.audit
    while True:
        chain = await log.chain(tenant=tenant)
        records = log.export(tenant=tenant)
        async with aclosing(records):
            checked = await check_chain(chain, records, kept)
        # Retention may shorten the chain between the two requests, which is no fault.
        if checked.problem is None or (await log.chain(tenant=tenant)).anchor_seq == chain.anchor_seq:
            break
    if session.out.json:
        session.out.document(asdict(checked))
    elif checked.problem is None:
        session.out.note(f"{checked.sentence} Its head is {checked.seq}:{checked.hash}")
    if checked.problem is not None:
        raise InvalidInput(checked.problem)


def _read_head(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", text)
    if found is None:
        raise InvalidInput(
            f"{text!r} is no head of a chain, which has the form 312:9f86d081… (64 digits).", field="head"
        )
    return int(found[1]), found[2]


async def _write(session: Session, file: Path, records: AsyncIterable[AuditEventView]) -> None:
    if str(file) == _STDOUT:
        async for record in records:
            session.out.stdout.write(record.model_dump_json() + "\n")
        return
    count = 0
    with new_file(file) as opened:
        async for record in records:
            opened.write(record.model_dump_json() + "\n")
            count += 1
    if session.out.json:
        session.out.document({"file": str(file), "records": count})
    else:
        session.out.note(f"{count} records are in {file}.")


def _who(event: AuditEventView) -> str:
    actor = f"{event.actor_name} ({event.actor_id})" if event.actor_name else event.actor_id
    return f"{event.actor_kind} {actor}"


_ROWS = Rows[AuditEventView](
    "Nothing was changed.",
    Column("at", lambda event: event.at),
    Column("who", _who, "text"),
    Column("action", lambda event: describe_action(event.action)),
    Column("thing", lambda event: event.target_id, "text"),
    Column("code", lambda event: event.action, "spare"),
    Column("fields", lambda event: ", ".join(event.fields), "spare"),
    Column("from", lambda event: event.address or event.run_id),
)
