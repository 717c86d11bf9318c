"""What `nova fleet top` shows: the whole fleet on one screen, refreshed in place."""

import asyncio
import io

from rich.live import Live
from rich.text import Text

from nova_workers.base.errors import TooManyRequests, Unavailable
from nova_workers.cli.command import Session
from nova_workers.cli.terminal.chart import bar
from nova_workers.cli.terminal.output import Output, age, money, short, stamp
from nova_workers.contracts.http.fleet import FleetTop, FleetView, WorkerView

_MESSAGE_CHARS = 200


async def follow_top(session: Session, every_s: float) -> None:
    """Show the fleet until canceled: on the whole terminal, or as one JSON object a line.

    While the fleet is away the last view stays, with the reason.

    Raises:
        NovaError: The first request failed, or another one for a reason that does not pass.
    """
    top = await session.client.fleet.top()
    if session.out.json:
        while True:
            session.out.line(top)
            await asyncio.sleep(every_s)
            top = await session.client.fleet.top()
    # What does not fit is left out without a note, which would be in the middle of the screen.
    page, console = Output(json_mode=False, stdout=session.out.stdout, stderr=io.StringIO()), session.out.console
    away = ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            with page.console.capture() as captured:
                page.text(_heading(top, every_s), "dim")
                if away:
                    page.text(away, "red")
                show_top(page, top)
            live.update(Text.from_ansi(captured.get()), refresh=True)
            await asyncio.sleep(every_s)
            try:
                top, away = await session.client.fleet.top(), ""
            except (Unavailable, TooManyRequests) as error:
                away = f"since {stamp(top.at)}: {short(error.message, _MESSAGE_CHARS)}"


def show_top(out: Output, top: FleetTop) -> None:
    """Write one view."""
    fleet, minute = top.fleet, top.last_minute
    open_runs = ("queued", "running", "waiting", "scheduled")
    tokens = minute.input_tokens + minute.output_tokens
    out.facts(
        (
            ("runs", ", ".join(f"{fleet.runs.get(status, 0):,} {status}" for status in open_runs)),
            ("slots", _slots(fleet)),
            (
                "last minute",
                f"{minute.ended:,} ended, {minute.failed:,} failed, {tokens:,} tokens, {money(minute.cost_usd)}",
            ),
            *(("held", f"{held.runs:,} for {held.provider}: {held.advice}") for held in fleet.held),
            *(
                ("paused", " ".join(filter(None, (switch.scope, switch.target, switch.reason))))
                for switch in fleet.switches
            ),
        )
    )
    out.text()
    deepest = max((queue.queued for queue in fleet.queues), default=0)
    out.table(
        ("queue", ("", "spare"), "queued", "oldest"),
        [(each.queue, bar(each.queued, deepest), each.queued, age(each.oldest_queued_age_s)) for each in fleet.queues],
    )
    if top.longest:
        out.text()
        out.table(
            ("running for", ("agent", "text"), "thread", ("run", "spare"), ("queue", "spare"), "attempt"),
            [
                (age(run.elapsed_s), run.agent_id, run.thread_id, run.run_id, run.queue, run.attempt)
                for run in top.longest
            ],
        )
    if fleet.workers:
        out.text()
        out.table(
            ("worker", ("", "spare"), "busy", ("queues", "fold")),
            [
                (
                    f"{worker.host}:{worker.pid}",
                    bar(worker.busy, worker.slots),
                    f"{worker.busy}/{worker.slots}{' draining' if worker.draining else ''}",
                    ", ".join(worker.queues),
                )
                for worker in fleet.workers
            ],
        )


def _heading(top: FleetTop, every_s: float) -> str:
    return f"nova fleet top  {stamp(top.at)}  every {every_s:g} s  Ctrl-C ends it"


def _slots(fleet: FleetView) -> str:
    if fleet.workers is None:
        return "shown to keys with the scope operator"
    if not fleet.redis_answers:
        return "unknown: Redis does not answer"
    if not fleet.workers:
        return "no worker is alive"
    taking = [worker for worker in fleet.workers if not worker.draining]
    free = sum(_free(worker) for worker in taking)
    busy, slots = sum(worker.busy for worker in fleet.workers), sum(worker.slots for worker in fleet.workers)
    draining = len(fleet.workers) - len(taking)
    of_them = f", {draining} draining" if draining else ""
    return f"{busy:,} of {slots:,} used, {free:,} free, {len(fleet.workers)} worker(s){of_them}"


def _free(worker: WorkerView) -> int:
    return max(worker.slots - worker.busy, 0)
