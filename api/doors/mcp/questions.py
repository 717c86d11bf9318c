"""Waits of runs as elicitations of the protocol, and the other way round."""

from collections.abc import Mapping
from typing import Any

import orjson
from mcp.types import ElicitResult

from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import MAX_ANSWER_CHARS, AskUser, RunAnswer, WaitView, describe_question

from ..questions import open_questions

_DECLINED = "The user declined to answer."
_APPROVE = "approve"
_ANSWER = "answer"
_OTHER = "other"
_REASON = "reason"


def input_requests(run: RunView) -> dict[str, dict[str, Any]]:
    """Return the questions of a run as requests to a client, by the id of the wait, which is never used again."""
    return {wait.id: _elicitation(wait) for wait in open_questions(run)}


def answers_to(run: RunView, responses: Mapping[str, Any], *, by: str) -> list[RunAnswer]:
    """Return the answers in a client's responses. Those to what the run does not ask, or no longer, are left out.

    Args:
        run: The run, as it is now.
        responses: By the id of the wait.
        by: Who answers, for the record.

    Raises:
        ValidationError: A response has not the form of an elicitation's result.
    """
    return [
        _answer(wait, ElicitResult.model_validate(responses[wait.id], by_name=False), by)
        for wait in open_questions(run)
        if wait.id in responses
    ]


def _elicitation(wait: WaitView) -> dict[str, Any]:
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": describe_question(wait), "requestedSchema": _form(wait)},
    }


def _form(wait: WaitView) -> dict[str, Any]:
    if not isinstance(wait.request, AskUser):
        properties: dict[str, Any] = {
            _APPROVE: {"type": "boolean", "title": "Allow this call"},
            _REASON: {"type": "string", "title": "Reason"},
        }
        return {"type": "object", "properties": properties, "required": [_APPROVE]}
    text: dict[str, Any] = {"type": "string", "title": "Answer"}
    if not wait.request.options:
        return {
            "type": "object",
            "properties": {_ANSWER: text | {"maxLength": MAX_ANSWER_CHARS}},
            "required": [_ANSWER],
        }
    choice = text | {"enum": list(wait.request.options)}
    if wait.request.only_options:
        return {"type": "object", "properties": {_ANSWER: choice}, "required": [_ANSWER]}
    return {
        "type": "object",
        "properties": {_ANSWER: choice, _OTHER: {"type": "string", "title": "Another answer"}},
    }


def _answer(wait: WaitView, given: ElicitResult, by: str) -> RunAnswer:
    content = {name: value for name, value in (given.content or {}).items() if value and str(value).strip()}
    is_question = isinstance(wait.request, AskUser)
    if given.action != "accept" or not content:
        # Who dismisses a question, or sends an empty form, is not asked again, as a client shows each request once. So
        # this is an answer too.
        if is_question:
            return RunAnswer(wait_id=wait.id, text=_DECLINED, by=by)
        return RunAnswer(wait_id=wait.id, approve=False, by=by)
    if not is_question:
        reason = str(content.get(_REASON) or "").strip()
        return RunAnswer(wait_id=wait.id, approve=content.get(_APPROVE) is True, text=reason or None, by=by)
    text = str(content.get(_OTHER) or content.get(_ANSWER) or "").strip()
    # A client that fills in another form than ours: the agent gets what it sent.
    return RunAnswer(wait_id=wait.id, text=text or orjson.dumps(content).decode(), by=by)
