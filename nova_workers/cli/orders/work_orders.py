"""`nova orders submit|show|wait|cancel|list|parts|trail|review`: work orders themselves."""

from typing import Annotated, Any, get_args

import orjson
import typer
from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.validation import place_of, problem_of
from nova_workers.base.vocabulary import OrderState, ReviewVerdict
from nova_workers.cli.command import Session, remote
from nova_workers.cli.orders.documents import read_document
from nova_workers.cli.resources import Filter, listing
from nova_workers.cli.terminal.output import Output, money
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.work_orders import (
    OrderReview,
    WorkOrderPartView,
    WorkOrderTrailView,
    WorkOrderView,
)
from nova_workers.contracts.orders import AiWorkOrderV1, AiWorkResultV1, derive_key_hash

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_UNKEYED = "to-be-derived"

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="The order's id, such as trc_…")]
InternalOption = Annotated[bool, typer.Option("--internal", help="For operators: with what customers do not see.")]


@remote(app, "submit")
async def submit(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The order, as JSON or YAML. - reads stdin.")],
    secret: Annotated[
        str | None,
        typer.Option(envvar="IDEMPOTENCY_SECRET", show_envvar=True, help="Derives the key, which FILE may leave out."),
    ] = None,
    respond_async: Annotated[bool, typer.Option("--async", help="Do not wait for the end.")] = False,
) -> None:
    """Submit an order and print its result. Exit code 1 if it failed."""
    order = _order(read_document(file), secret)
    _end(session, await session.client.work_orders.submit(order, respond_async=respond_async))


@remote(app, "show")
async def show(session: Session, trace: TraceArgument, internal: InternalOption = False) -> None:
    """Print the result of an order, or its present state."""
    session.out.write(await session.client.work_orders.get(trace, internal=internal), _show)


@remote(app, "wait")
async def wait(session: Session, trace: TraceArgument) -> None:
    """Wait until an order has ended or needs a person, and print its result. Exit code 1 if it failed."""
    _end(session, await session.client.work_orders.wait(trace))


@remote(app, "cancel")
async def cancel(session: Session, trace: TraceArgument) -> None:
    """Cancel an order that runs or is in review. Equal orders that wait for it are canceled, too."""
    session.out.write(await session.client.work_orders.cancel(trace), _show)


listing(
    app,
    "List orders without their content, newest first.",
    lambda nova: nova.work_orders.list,
    Rows[WorkOrderView](
        "No orders.",
        Column("order", lambda order: order.trace_id),
        Column("state", lambda order: order.state),
        Column("stopped", lambda order: order.stop_reason),
        Column("policy", lambda order: order.policy_id),
        Column("scope", lambda order: order.scope),
        Column("made", lambda order: order.created_at),
    ),
    state=Filter(f"One of {', '.join(get_args(OrderState))}.", OrderState),
    policy=Filter("Only under this policy.", sent_as="policy_id"),
)


@remote(app, "parts")
async def parts(session: Session, trace: TraceArgument) -> None:
    """List the model jobs of an order with their runs and costs. For operators: it needs the scope agents."""
    session.out.write(await session.client.work_orders.parts(trace), _show_parts)


@remote(app, "trail")
async def trail(session: Session, trace: TraceArgument, internal: InternalOption = False) -> None:
    """Print what happened to an order, oldest first. Empty if the order did not ask for a trail."""
    session.out.write(await session.client.work_orders.trail(trace, internal=internal), _show_trail)


@remote(app, "review")
async def review(
    session: Session,
    trace: TraceArgument,
    verdict: Annotated[ReviewVerdict, typer.Argument(help="approve, edit or reject.")],
    payload: Annotated[str | None, typer.Option(metavar="FILE", help="With edit: the payload, JSON or YAML.")] = None,
) -> None:
    """Decide on an order in review, and print its result."""
    document = None if payload is None else read_document(payload)
    decision = OrderReview(verdict=verdict, payload=document)
    session.out.write(await session.client.work_orders.review(trace, decision), _show)


def _end(session: Session, result: AiWorkResultV1) -> None:
    session.out.write(result, _show)
    if result.status == "failed":
        raise typer.Exit(1)


def _order(document: dict[str, Any], secret: str | None) -> AiWorkOrderV1:
    """Return the order of a document, with the key that belongs to it if there is a secret."""
    if secret is not None:
        document = {**document, "idempotency": {"keyHash": _UNKEYED, **(document.get("idempotency") or {})}}
    try:
        order = AiWorkOrderV1.from_wire(document)
    except ValidationError as error:
        items = error.errors(include_url=False)
        wrong = "; ".join(f"{place_of(item) or 'the order'}: {problem_of(item, AiWorkOrderV1)}" for item in items)
        raise InvalidInput(wrong) from error
    if secret is None:
        return order
    key = order.idempotency.model_copy(update={"key_hash": derive_key_hash(order, secret)})
    return order.model_copy(update={"idempotency": key})


def _show_parts(out: Output, page: Page[WorkOrderPartView]) -> None:
    if not page.items:
        out.note("No model job yet.")
        return
    rows = [
        (
            part.run_id,
            f"{part.role} {part.round}",
            part.stop_reason or part.run_status or "deleted",
            part.model or "-",
            f"{part.tokens:,}",
            money(part.cost_usd),
        )
        for part in page.items
    ]
    out.table(("run", "role", "state", "model", "tokens", "cost"), rows)


def _show_trail(out: Output, view: WorkOrderTrailView) -> None:
    if not view.items:
        out.note("No trail.")
        return
    rows = [(entry.created_at, entry.event, orjson.dumps(entry.data).decode()) for entry in view.items]
    out.table(("at", "event", ("data", "fold")), rows)


def _show(out: Output, result: AiWorkResultV1) -> None:
    needs = ", needs a person" if result.needs_human else ""
    out.facts([("order", result.trace_id), ("state", f"{result.status}: {result.stop_reason}{needs}")])
    extensions = result.extensions
    for artifact in result.artifacts:
        out.text(orjson.dumps(artifact.to_wire(), option=orjson.OPT_INDENT_2).decode())
    if extensions is None:
        return
    for alternative in extensions.alternatives or []:
        out.text(f"or {orjson.dumps(alternative.to_wire(), option=orjson.OPT_INDENT_2).decode()}")
    for problem in extensions.problems or []:
        out.note(f"{problem.path or 'the order'}: {problem.rule}", "red")
    if extensions.message:
        out.note(extensions.message)
    if extensions.waiting is not None:
        out.note(extensions.waiting.line, "yellow")
