"""`nova fleet`: queues, workers and model providers; pause and resume."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from nova_workers.base.vocabulary import ENDED_RUNS, PauseScope, RestReason
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.operations.fleet_top import follow_top, show_top
from nova_workers.cli.resources import group
from nova_workers.cli.terminal.chart import bar
from nova_workers.cli.terminal.output import Heading, Output, age, short, stamp
from nova_workers.contracts.http.fleet import (
    FleetPause,
    FleetView,
    ProvidersCleared,
    ProvidersView,
    WorkerDrain,
    WorkerView,
    served_by_none_but,
)

app = group("See depth and workers; pause and resume.")

_REASONS: Mapping[RestReason, str] = {
    "auth": "key refused",
    "rate_limit": "over its limit",
    "failures": "failed conversations",
}
_COLUMNS: tuple[Heading, ...] = (
    "provider",
    "model",
    "key",
    "state",
    ("since", "spare"),
    "next try",
    ("threads", "spare"),
    ("error", "fold"),
)
_ERROR_CHARS = 200

AgentOption = Annotated[str | None, typer.Option(help="Only this agent.")]
ScopeOption = Annotated[
    PauseScope | None,
    typer.Option(help="Default: the tenant, or the agent of --agent. fleet needs the operator scope."),
]


@remote(app, "status")
async def status(session: Session) -> None:
    """Show runs, queues, workers and pauses."""
    session.out.write(await session.client.fleet.view(), _show)


@remote(app, "top")
async def top(
    session: Session,
    every: Annotated[float, typer.Option(help="Seconds between two views.", min=1.0)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end, as in a pipe.")] = False,
) -> None:
    """Show the fleet live: runs, slots, queues, what runs longest, cost a minute, workers. Ctrl-C ends it."""
    if once or not (session.out.tty or session.out.json):
        session.out.write(await session.client.fleet.top(), show_top)
    else:
        await follow_top(session, every)


@remote(app, "pause")
async def pause(
    session: Session,
    agent: AgentOption = None,
    scope: ScopeOption = None,
    reason: Annotated[str | None, typer.Option(help="Why; shown for waiting runs.")] = None,
) -> None:
    """Start no new runs. Running ones continue, queued ones stay queued."""
    session.out.write(await session.client.fleet.pause(_which(agent, scope, reason)), _show)


@remote(app, "resume")
async def resume(session: Session, agent: AgentOption = None, scope: ScopeOption = None) -> None:
    """Let new runs start again."""
    which = _which(agent, scope, None)
    before = await session.client.fleet.view()
    after = await session.client.fleet.resume(which)
    if not session.out.json and _pauses(after, which) >= _pauses(before, which):
        session.out.note(f"{_about(which.scope, which.agent_id)} was not paused", "yellow")
    session.out.write(after, _show)


@remote(app, "drain")
async def drain(
    session: Session,
    worker: Annotated[str, typer.Argument(help="Its id, or its host and pid as `nova fleet status` shows them.")],
) -> None:
    """Let a worker requeue its runs at their next step, and end. A supervisor may start another one in its place."""
    calls = session.client.fleet
    live = (await calls.view()).workers or []
    found = worker_named(worker, live)
    order = await calls.drain_worker(worker if found is None else found.id)

    def show(out: Output, order: WorkerDrain) -> None:
        out.note(f"{order.worker} was ordered to drain {stamp(order.ordered_at)}: it begins within seconds")
        if found is not None and (queues := served_by_none_but(found, live)):
            out.note(f"no other worker takes runs of {', '.join(queues)}: they wait until one starts", "yellow")

    session.out.write(order, show)


@remote(app, "providers")
async def providers(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(help="With --clear: a provider, a model or a profile. Default: all.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget rests and failures: workers call them again.")] = False,
) -> None:
    """Show keys of model providers that rest, and models that fail. Needs the operator scope."""
    if name is not None and not clear:
        raise typer.BadParameter("A name goes with --clear.", param_hint="NAME")
    calls = session.client.fleet
    session.out.write(await (calls.clear_providers(name) if clear else calls.providers()), _show_providers)


def _show_providers(out: Output, view: ProvidersView) -> None:
    if isinstance(view, ProvidersCleared):
        out.note(f"{view.cleared} cleared" if view.cleared else "nothing to clear")
    if not view.redis_answers:
        out.note("Redis does not answer, in which workers share this. Check NOVA_REDIS_URL", "yellow")
    elif not view.rests:
        out.note("no key rests, and no model fails")
    else:
        out.table(
            _COLUMNS,
            [
                (
                    rest.provider,
                    rest.model or "all",
                    rest.profile or "",
                    f"{rest.state}: {_REASONS[rest.reason]}",
                    rest.since,
                    rest.until,
                    ", ".join(rest.conversations),
                    short(rest.error or "", _ERROR_CHARS),
                )
                for rest in view.rests
            ],
        )


def worker_named(name: str, workers: Sequence[WorkerView]) -> WorkerView | None:
    """Return the worker with this id, or the one with this name in tables; None if there is none.

    Raises:
        BadParameter: Several have this name.
    """
    found = [worker for worker in workers if name in {worker.id, _name_of(worker)}]
    if len(found) > 1:
        ids = ", ".join(worker.id for worker in found)
        raise typer.BadParameter(f"Several workers are {name!r}: {ids}.", param_hint="WORKER")
    return found[0] if found else None


def _name_of(worker: WorkerView) -> str:
    return f"{worker.host}:{worker.pid}"


def _which(agent: str | None, scope: str | None, reason: str | None) -> FleetPause:
    chosen = scope or ("agent" if agent else "tenant")
    return build(FleetPause, given(scope=chosen, agent_id=agent, reason=reason))


def _pauses(view: FleetView, which: FleetPause) -> int:
    """Count matching pauses. An operator sees those of all tenants, without their tenant."""
    return sum((switch.scope, switch.target) == (which.scope, which.agent_id) for switch in view.switches)


def _about(scope: str, agent_id: str | None) -> str:
    return f"agent {agent_id}" if scope == "agent" else "everything" if scope == "fleet" else "this tenant"


def _show(out: Output, view: FleetView) -> None:
    out.facts((f"{name} in the last hour" if name in ENDED_RUNS else name, count) for name, count in view.runs.items())
    if view.queues:
        deepest = max(queue.queued for queue in view.queues)
        out.table(
            ("queue", ("", "spare"), "queued", "oldest"),
            [
                (queue.queue, bar(queue.queued, deepest), queue.queued, age(queue.oldest_queued_age_s))
                for queue in view.queues
            ],
        )
    if view.workers:
        out.table(
            ("worker", ("", "spare"), "busy", ("queues", "fold"), ("seen", "spare")),
            [
                (
                    _name_of(worker),
                    bar(worker.busy, worker.slots),
                    f"{worker.busy}/{worker.slots}"
                    + (f" + {worker.suspects} alone" if worker.suspects else "")
                    + (" draining" if worker.draining else " to drain" if worker.drain_ordered_at else ""),
                    ", ".join(worker.queues),
                    worker.seen_at,
                )
                for worker in view.workers
            ],
        )
        installed = [(worker, code) for worker in view.workers for code in worker.projects]
        if installed:
            out.table(
                ("worker", "project", "version", "code", ("problem", "fold")),
                [(_name_of(worker), code.project, code.version, code.code, code.problem) for worker, code in installed],
            )
        # Those of one host say the same.
        for host, warning in dict.fromkeys((each.host, warning) for each in view.workers for warning in each.warnings):
            out.note(f"{host}: {warning}", "yellow")
    elif not view.redis_answers:
        out.note(
            "Redis does not answer: messages are accepted, and start when it is back. Check NOVA_REDIS_URL", "yellow"
        )
    elif view.workers is None:
        out.note("Workers are shown to keys with the scope operator. `nova doctor` checks them.")
    else:
        out.note("No worker is alive: messages are accepted, and wait. Start one: nova worker", "yellow")
    for order in view.drained:
        out.note(f"{order.worker} drained" + (f" and ended {stamp(order.ended_at)}" if order.ended_at else ""))
    for switch in view.switches:
        because = f": {switch.reason}" if switch.reason else ""
        out.note(f"paused {_about(switch.scope, switch.target)} since {stamp(switch.created_at)}{because}", "yellow")
