"""The demo's tables: processes, ledger, conversation, and the tasks that Flower shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import httpx2
from rich import box
from rich.table import Table
from rich.text import Text

from nova_workers.base.errors import Unavailable
from nova_workers.cli.terminal.output import money, printable, short
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.wire import MessageView, RunView, ThreadView, TurnView
from nova_workers.devstack.commands import FLOWER_MAX_TASKS
from nova_workers.devstack.home import FLOWER_USER, StackState

_TIMEOUT_S = 10.0
_FLOWER_ROWS = 12


@dataclass(frozen=True, slots=True)
class FlowerTask:
    """One row of Flower's list of tasks."""

    name: str
    ids: str
    state: str
    runtime_s: float | None
    worker: str


def process_table(pids: Mapping[str, int], state: StackState) -> Table:
    """Return the processes and their addresses."""
    where = {
        "api": state.api_url,
        "console": state.console_url or "",
        "flower": state.flower_url,
        "postgres": "a private Unix socket",
        "valkey": "a private Unix socket",
        "model": "loopback, speaks the Anthropic API",
        "worker": "1,024 turns at once, on one event loop",
        "beat": "ticks",
    }
    table = _table("process", "pid", "where")
    for name, pid in pids.items():
        table.add_row(name, str(pid), where.get(name, ""))
    return table


def ledger_table(
    runs: Sequence[RunView], threads: Mapping[str, ThreadView], turns: Mapping[str, Sequence[TurnView]]
) -> Table:
    """Return the runs with the facts of their turns in the ledger."""
    table = _table("thread", "title", "run", "status", "steps", "tools", "tokens in/out", "cost", "in queue", "took")
    for run in runs:
        turn = next((turn for turn in turns[run.thread_id] if turn.run_id == run.id), None)
        usage = run.usage
        read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens if usage else 0
        table.add_row(
            f"…{run.thread_id[-6:]}",
            threads[run.thread_id].title or "",
            f"…{run.id[-6:]}",
            Text(run.status, style="green"),
            str(turn.steps) if turn else "",
            ", ".join(call.tool_name for call in turn.tool_calls) if turn else "",
            f"{read:,} / {usage.output_tokens:,}" if usage else "",
            money(usage.cost_usd) if usage else "",
            _ms(run.created_at, run.started_at),
            _ms(run.started_at, run.finished_at),
        )
    return table


def messages_table(thread_id: str, messages: Sequence[MessageView]) -> Table:
    """Return the messages of a thread as stored."""
    table = _table("message", "role", f"content, in thread …{thread_id[-6:]}")
    for message in messages:
        table.add_row(message.kind, message.role, short("  ".join(_block(block) for block in message.content), 76))
    return table


def flower_table(tasks: Sequence[FlowerTask]) -> Table:
    """Return the newest tasks: doorbells by the ids that they carry, of ticks the newest of each name."""
    table = _table("task", "ids", "state", "runtime", "worker")
    shown: dict[str, FlowerTask] = {}
    for task in tasks:
        shown.setdefault(task.ids or task.name, task)
    for task in list(shown.values())[:_FLOWER_ROWS]:
        runtime = "" if task.runtime_s is None else f"{task.runtime_s * 1_000:.0f} ms"
        table.add_row(task.name, printable(task.ids), Text(task.state, style="green"), runtime, task.worker)
    return table


async def flower_tasks(url: str, password: str) -> list[FlowerTask]:
    """Read the list that Flower's page shows, newest first.

    Raises:
        Unavailable: Flower does not answer.
    """
    query = {
        "draw": 1,
        "start": 0,
        "length": FLOWER_MAX_TASKS,
        "search[value]": "",
        "order[0][column]": 0,
        "order[0][dir]": "desc",
        "columns[0][data]": "received",
    }
    try:
        async with httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False, auth=(FLOWER_USER, password)) as client:
            answer = await client.get(f"{url}/tasks/datatable", params=query)
            rows = answer.raise_for_status().json()["data"]
    except httpx2.HTTPError as error:
        raise Unavailable(f"Flower does not answer at {url} ({error}).") from error
    return [
        FlowerTask(
            name=str(row.get("name")),
            ids=str(row.get("kwargs") or "").strip("{}"),
            state=str(row.get("state")),
            runtime_s=row.get("runtime"),
            worker=str(row.get("worker") or ""),
        )
        for row in rows
        # A tick that expired before a worker received it has no name.
        if row.get("name")
    ]


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _block(block: ContentBlock) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text"))
    if kind == "tool_use":
        return f"→ {block.get('name')} {block.get('input')}"
    if kind == "tool_result":
        content = block.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        return "← " + " ".join(str(part.get("text", "")) for part in parts)
    return f"[{kind}]"


def _ms(start: datetime | None, end: datetime | None) -> str:
    return f"{(end - start).total_seconds() * 1_000:.0f} ms" if start and end else ""
