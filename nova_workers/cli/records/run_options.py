"""The options of commands that select runs: those of `GET /v1/runs`, and a list that was saved."""

from dataclasses import dataclass, fields
from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput, NotFound
from nova_workers.base.vocabulary import Rating, RunSort, RunSource, SortOrder
from nova_workers.cli.command import build
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.run_lists import RunListQuery, RunListView, RunPeriod
from nova_workers.contracts.http.wire import RunQueue


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Which runs, and in which order."""

    thread_id: Annotated[str | None, typer.Option("--thread", help="Only those of this thread.")] = None
    agent_id: Annotated[str | None, typer.Option("--agent", help="Only those of this agent.")] = None
    status: Annotated[list[str] | None, typer.Option(help="Only those in this state; may be repeated.")] = None
    period: Annotated[
        RunPeriod | None, typer.Option(help="Only those submitted in this time until now; today is in UTC.")
    ] = None
    agent_version: Annotated[
        int | None, typer.Option("--version", min=1, help="Only those that this version of their agent executed.")
    ] = None
    since: Annotated[str | None, typer.Option(help="Only those submitted then or later: 2026-05-01T09:00Z.")] = None
    until: Annotated[str | None, typer.Option(help="Only those submitted before: 2026-05-02T09:00Z.")] = None
    queue: Annotated[RunQueue | None, typer.Option(help="Only those in this queue.")] = None
    trigger_id: Annotated[str | None, typer.Option("--trigger", help="Only those that this trigger fired.")] = None
    parent_run_id: Annotated[str | None, typer.Option("--parent", help="Only those that this run started.")] = None
    source: Annotated[RunSource | None, typer.Option(help="Only those that were submitted by this.")] = None
    channel: Annotated[str | None, typer.Option(help="Only those that came through this channel.")] = None
    tag: Annotated[str | None, typer.Option(help="Only those with this word among the tags of their metadata.")] = None
    metadata: Annotated[
        list[str] | None,
        typer.Option(help="Only those with this in their metadata: customer=42; in lists it may be repeated."),
    ] = None
    min_cost_usd: Annotated[
        float | None, typer.Option("--min-cost", min=0, help="Only those that cost so many dollars or more.")
    ] = None
    rated: Annotated[Rating | None, typer.Option(help="Only those that were rated up, or down.")] = None
    text: Annotated[str | None, typer.Option(help="Only those with this text in their message, answer or error.")] = (
        None
    )
    sort: Annotated[RunSort | None, typer.Option(help="By created, cost, tokens, duration or queue_time.")] = None
    order: Annotated[SortOrder | None, typer.Option(help="desc: the newest or largest first; asc.")] = None

    def query(self, saved: RunListQuery | None = None) -> RunListQuery:
        """Return them as a query; what is not given is as in the saved one.

        Raises:
            InvalidInput: A value has the wrong form.
        """
        if len(entries := self.metadata or []) > 1:
            raise InvalidInput("A query has one entry of metadata at most.", field="metadata")
        named = {field.name: getattr(self, field.name) for field in fields(self)} | {"metadata": "".join(entries)}
        chosen = {name: value for name, value in named.items() if value not in (None, "", [])}
        return build(RunListQuery, {**(saved.model_dump() if saved else {}), **chosen})


async def find_list(nova: NovaClient, name: str) -> RunListView:
    """Return the list that was saved under a name.

    Raises:
        NotFound: There is none; the message names those that there are.
    """
    page = await nova.run_lists.list()
    for each in page.items:
        if name in {each.name, each.id}:
            return each
    others = ", ".join(repr(each.name) for each in page.items) or "none"
    raise NotFound(f"You saved no list as {name!r}. Those that you saved: {others}.", kind="run_list", id=name)


async def query_of(nova: NovaClient, which: RunOptions, saved: str | None) -> RunListQuery:
    """Return the query of a command: that of the saved list it names, changed by its options."""
    return which.query((await find_list(nova, saved)).query if saved else None)
