"""What of a run is selected, by the page's address: a step's model call, a tool's call, an attempt or a wait."""

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from starlette.requests import Request

from nova_workers.client.client import NovaClient
from nova_workers.console.access import if_allowed
from nova_workers.contracts.http.overview.requests import ModelRequestView
from nova_workers.contracts.http.overview.timeline import (
    AttemptView,
    ChildRun,
    RunTimeline,
    TimelineCall,
    TimelineStep,
    TimelineWait,
)
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import WaitView

T = TypeVar("T")

_AT = re.compile(r"(?P<kind>step|call|attempt|wait)-(?P<id>[0-9A-Za-z_]{1,40})(?:-(?P<number>\d{1,4}))?")
_MESSAGES = 20


class Selection(NamedTuple):
    """The selected part, and what is shown of it; without any, `at` is empty."""

    at: str = ""
    step: TimelineStep | None = None
    call: TimelineCall | None = None
    attempt: AttemptView | None = None
    wait: TimelineWait | None = None
    asks: WaitView | None = None
    """The question or call of a wait that a person can end."""
    child: ChildRun | None = None
    """The run that a wait is for."""
    request: ModelRequestView | None = None
    """None: the key may not read it."""


def selected(at: str, run: RunView, timeline: RunTimeline) -> Selection:
    """Return the part of a run that an address names, without the request of a step; none if there is no such part."""
    found = _AT.fullmatch(at)
    if found is None:
        return Selection()
    kind, id_ = found["kind"], found["id"]
    if kind == "wait":
        wait = _first([wait for wait in timeline.waits if wait.id == id_])
        asks = _first([wait for wait in run.waits if wait.id == id_])
        child = _first([child for child in timeline.children if wait is not None and child.id == wait.child_run_id])
        return Selection() if wait is None else Selection(at, wait=wait, asks=asks, child=child)
    if kind == "attempt":
        attempt = _first([attempt for attempt in timeline.attempts if str(attempt.attempt) == id_])
        return Selection() if attempt is None else Selection(at, attempt=attempt)
    step = _first([step for step in timeline.steps if str(step.index) == id_])
    if step is None:
        return Selection()
    if kind == "step":
        return Selection(at, step=step)
    call = _first([call for number, call in enumerate(step.calls) if str(number) == found["number"]])
    return Selection() if call is None else Selection(at, step=step, call=call)


async def with_request(client: NovaClient, request: Request, run_id: str, selection: Selection) -> Selection:
    """Return a selection with what the model was asked, if it is a step's."""
    if selection.step is None or selection.call is not None:
        return selection
    asked = client.runs.request(
        run_id, selection.step.index, limit=_MESSAGES, cursor=request.query_params.get("messages")
    )
    return selection._replace(request=await if_allowed(asked, None))


def _first(found: Sequence[T]) -> T | None:
    return found[0] if found else None
