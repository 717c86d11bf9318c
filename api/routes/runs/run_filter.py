"""The filter of requests for runs, as parameters of a query."""

from typing import Annotated

from fastapi import Depends, Query
from pydantic import StringConstraints

from nova_workers.base.errors import InvalidInput
from nova_workers.base.vocabulary import Rating, RunQueue, RunSource, RunStatus
from nova_workers.contracts.bodies import Moment, OneLine
from nova_workers.contracts.http.agents import MAX_VERSION
from nova_workers.contracts.http.wire import MAX_METADATA_FILTERS
from nova_workers.domain.runs.sql.filters import RunFilter

from ...params import AgentIdQuery, ThreadIdQuery

_MAX_WORD = 200

_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
_Word = Annotated[OneLine, StringConstraints(min_length=1, max_length=_MAX_WORD)]

_Statuses = Annotated[
    list[RunStatus] | None, Query(alias="status", max_length=10, description="Only with this status; may be repeated.")
]
_AgentVersion = Annotated[
    int | None, Query(ge=1, le=MAX_VERSION, description="Only those that this version of their agent executed.")
]
_Queue = Annotated[RunQueue | None, Query(description="Only of this queue.")]
_TriggerId = Annotated[_Id | None, Query(description="Only those that this trigger fired.")]
_ParentRunId = Annotated[_Id | None, Query(description="Only those that this run started.")]
_Since = Annotated[Moment | None, Query(description="Only those submitted at this time or later.")]
_Until = Annotated[Moment | None, Query(description="Only those submitted before this time.")]
_Source = Annotated[RunSource | None, Query(description="Only those that were submitted by this.")]
_Channel = Annotated[_Word | None, Query(description="Only those with this `channel` in their metadata.")]
_Tag = Annotated[_Word | None, Query(description="Only those with this word among the `tags` of their metadata.")]
_Metadata = Annotated[
    list[OneLine] | None,
    Query(
        max_length=MAX_METADATA_FILTERS,
        description="Only those with this entry of metadata, as `key=value`; may be repeated.",
    ),
]
_MinCost = Annotated[
    float | None, Query(ge=0, allow_inf_nan=False, description="Only those that cost so many dollars or more.")
]
_Rated = Annotated[
    Rating | None, Query(description="Only those with feedback whose score is above 0 (`up`), or below (`down`).")
]
_Tool = Annotated[_Word | None, Query(description="Only those that called this tool.")]
_Text = Annotated[
    _Word | None, Query(description="Only those with this text in their message, answer or error, in any case.")
]


def _run_filter(
    *,
    thread_id: ThreadIdQuery = None,
    agent_id: AgentIdQuery = None,
    agent_version: _AgentVersion = None,
    statuses: _Statuses = None,
    queue: _Queue = None,
    trigger_id: _TriggerId = None,
    parent_run_id: _ParentRunId = None,
    since: _Since = None,
    until: _Until = None,
    source: _Source = None,
    channel: _Channel = None,
    tag: _Tag = None,
    metadata: _Metadata = None,
    min_cost_usd: _MinCost = None,
    rated: _Rated = None,
    tool: _Tool = None,
    text: _Text = None,
) -> RunFilter:
    return RunFilter(
        thread_id=thread_id,
        agent_id=agent_id,
        agent_version=agent_version,
        statuses=frozenset(statuses or ()),
        queue=queue,
        trigger_id=trigger_id,
        parent_run_id=parent_run_id,
        since=since,
        until=until,
        source=source,
        channel=channel,
        tag=tag,
        metadata=_entries(metadata or []),
        min_cost_usd=min_cost_usd,
        rated=rated,
        tool=tool,
        text=text,
        # Of evaluations only where they are asked for: these have a list of their own.
        evaluations=source is not None or thread_id is not None,
    )


RunFilterQuery = Annotated[RunFilter, Depends(_run_filter)]


def key_of(which: RunFilter) -> tuple[object, ...]:
    """Return a filter as one of a cursor, which belongs to it."""
    return (
        which.thread_id,
        which.agent_id,
        which.agent_version,
        sorted(which.statuses),
        which.queue,
        which.trigger_id,
        which.parent_run_id,
        which.since,
        which.until,
        which.source,
        which.channel,
        which.tag,
        sorted((which.metadata or {}).items()),
        which.min_cost_usd,
        which.rated,
        which.tool,
        which.text,
    )


def _entries(given: list[str]) -> dict[str, str] | None:
    entries: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not key or not equals:
            raise InvalidInput(f"{each!r} is no entry of metadata, such as customer=42.", field="metadata", status=422)
        entries[key] = value
    return entries or None
