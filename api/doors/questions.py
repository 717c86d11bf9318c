"""What runs ask people and clients, and in words."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from nova_workers.base.vocabulary import ANSWERABLE, ENDED_RUNS, EXTERNAL_WAITS
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import AskApproval, AskUser, WaitView


def open_questions(run: RunView) -> Sequence[WaitView]:
    """Return the waits of a run that a person ends."""
    return [wait for wait in run.waits if wait.request.kind in ANSWERABLE]


def outside_waits(run: RunView) -> list[WaitView]:
    """Return the waits of a run that its client or a person ends."""
    return [wait for wait in run.waits if wait.request.kind in EXTERNAL_WAITS]


def is_settled(run: RunView) -> bool:
    """Return whether a run has ended, or waits for something outside the fleet."""
    return run.status in ENDED_RUNS or bool(outside_waits(run))


def describe(wait: WaitView) -> str:
    """Return a question in words, for a model or a person."""
    match wait.request:
        case AskUser(question=question, options=options):
            return "\n".join([question, *(f"- {option}" for option in options)])
        case AskApproval(tool_name=tool, params=params, reason=reason):
            shown = orjson.dumps(params, option=orjson.OPT_INDENT_2).decode()
            return f"May {wait.agent_id} call {tool}? {reason}\n{shown}"
        case _:
            raise AssertionError(f"unreachable: a person does not end a wait of the kind {wait.request.kind!r}")
