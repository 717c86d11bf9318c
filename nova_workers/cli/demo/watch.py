"""The demo's view of one run: text and tool calls as they arrive, and their timing."""

import time
from contextlib import aclosing
from dataclasses import dataclass

from rich.console import Console

from nova_workers.base.errors import Unavailable
from nova_workers.cli.talk.live import tool_line
from nova_workers.cli.terminal.output import printable
from nova_workers.client.client import NovaClient
from nova_workers.contracts.events import StreamEnd, StreamError, Token, ToolStatus
from nova_workers.contracts.http.wire import RunView


@dataclass(frozen=True, slots=True)
class Watched:
    """A run that succeeded. Times are from the moment before its request."""

    run: RunView
    first_token_ms: float | None
    whole_ms: float

    @property
    def times(self) -> str:
        """Both times as text."""
        first = "none" if self.first_token_ms is None else f"{self.first_token_ms:.0f} ms"
        return f"first word after {first} · done after {self.whole_ms:.0f} ms"


async def watch_run(
    console: Console, client: NovaClient, run_id: str, *, began_s: float, brief: bool = False
) -> Watched:
    """Print a run's text and tool calls until it ends.

    Args:
        console: The output.
        client: A client of the run's tenant.
        began_s: Time of the request, by `time.monotonic`.
        brief: Whether to print only the results of tools.

    Raises:
        Unavailable: It did not succeed.
    """
    run = await client.runs.get(run_id)
    first_token_ms: float | None = None
    asked: dict[str, str | None] = {}
    open_line = False
    async with aclosing(client.runs.events(run_id)) as events:
        async for _, event in events:
            if isinstance(event, Token):
                if first_token_ms is None:
                    first_token_ms = ms_since(began_s)
                if not open_line:
                    console.print(f"[bold green]{run.agent_id}[/] ", end="")
                    open_line = True
                console.out(printable(event.text), end="", highlight=False)
            elif isinstance(event, ToolStatus | StreamError | StreamEnd) and open_line:
                console.print()
                open_line = False
            if isinstance(event, ToolStatus) and event.status == "started":
                asked[event.tool_call_id] = None if brief else event.summary
            elif isinstance(event, ToolStatus):
                console.print(f"     {tool_line(event, asked.get(event.tool_call_id))}", style="cyan", markup=False)
    whole_ms = ms_since(began_s)
    run = await client.runs.get(run_id)
    if run.status != "succeeded":
        raise Unavailable(f"Run {run.id} ended as {run.status!r}: {run.error.message if run.error else 'no error'}")
    return Watched(run, first_token_ms, whole_ms)


def ms_since(began_s: float) -> float:
    """Return the milliseconds since a moment of `time.monotonic`."""
    return (time.monotonic() - began_s) * 1_000
