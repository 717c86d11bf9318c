"""Runs as results of tool calls."""

from collections.abc import Sequence
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, CallToolResult, ContentBlock, ResourceLink, TextContent
from pydantic import BaseModel, Field

from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import AskUser, describe_question

from ..items import FileItem
from ..questions import open_questions

_FAULTS_OF_THE_FLEET = frozenset({"engine_error", "unknown", "worker_lost"})
"""Kinds of failures that are the server's own. All others are results that a model can act on."""


class AskedQuestion(BaseModel):
    """What a run asks a person."""

    wait_id: str
    kind: str = Field(description="user: a question. approval: whether a call is permitted.")
    question: str
    options: list[str] = Field(default_factory=list[str])
    only_options: bool = Field(False, description="No other answer is taken.")


class RunOutcome(BaseModel):
    """A run, as the structured content of a result."""

    run_id: str
    thread_id: str = Field(description="Give it to continue the conversation.")
    agent_id: str
    status: str = Field(description="succeeded, failed, canceled; or, of a run that goes on, queued, running, waiting.")
    text: str | None = Field(None, description="The answer, or what there is of it.")
    output: Any = Field(None, description="The answer of an agent with an output schema.")
    limit_reached: str | None = Field(None, description="The limit that ended the run: turns, tokens, cost or time.")
    error: str | None = None
    questions: list[AskedQuestion] = Field(default_factory=list[AskedQuestion], description="Use the tool `answer`.")


OUTCOME_SCHEMA = RunOutcome.model_json_schema(mode="serialization")


def result_of(run: RunView, files: Sequence[FileItem] = ()) -> CallToolResult:
    """Return the result of a call that waits for a run.

    Args:
        run: As it is now.
        files: What it sent: clients read them as resources.

    Raises:
        MCPError: The run failed by a fault of the fleet.
    """
    if (fault := fault_of(run)) is not None:
        raise fault
    return CallToolResult(
        content=[_text(run), *map(_link, files)],
        structured_content=outcome_of(run).model_dump(mode="json"),
        is_error=run.status in {"failed", "canceled"},
    )


def fault_of(run: RunView) -> MCPError | None:
    """Return the error of a run that failed by a fault of the fleet."""
    if run.status != "failed" or run.error is None or run.error.kind not in _FAULTS_OF_THE_FLEET:
        return None
    return MCPError(INTERNAL_ERROR, run.error.message, {"code": run.error.kind, "runId": run.id})


def outcome_of(run: RunView) -> RunOutcome:
    """Return a run as structured content."""
    return RunOutcome(
        run_id=run.id,
        thread_id=run.thread_id,
        agent_id=run.agent_id,
        status=run.status,
        text=run.text,
        output=run.output,
        limit_reached=run.limit_reached,
        error=None if run.error is None else run.error.message,
        questions=[
            AskedQuestion(
                wait_id=wait.id,
                kind=wait.request.kind,
                question=describe_question(wait),
                options=list(wait.request.options) if isinstance(wait.request, AskUser) else [],
                only_options=isinstance(wait.request, AskUser) and wait.request.only_options,
            )
            for wait in open_questions(run)
        ],
    )


def progress_of(run: RunView, tool: str | None = None) -> str:
    """Return one line on what a run does, with the tool that it executes."""
    if run.status == "running":
        return f"{run.agent_id} uses {tool}." if tool else f"{run.agent_id} works on it."
    return f"{run.status}: {run.waiting_for}" if run.waiting_for else run.status


def _link(file: FileItem) -> ContentBlock:
    return ResourceLink(
        uri=f"nova://files/{file.id}",
        name=file.name,
        description=file.caption,
        mime_type=file.media_type,
        size=file.size_bytes,
    )


def _text(run: RunView) -> ContentBlock:
    parts = [run.text] if run.text else []
    if run.error is not None:
        parts.append(f"The run failed: {run.error.message}")
    elif run.status == "canceled":
        parts.append("The run was canceled.")
    parts.extend(
        f"{run.agent_id} asks:\n{describe_question(wait)}\n"
        f"Answer with the tool `answer`, run_id {run.id}, wait_id {wait.id}."
        for wait in open_questions(run)
    )
    if run.status not in ENDED_RUNS and not open_questions(run):
        why = f" ({run.waiting_for})" if run.waiting_for else ""
        parts.append(f"The run {run.id} is {run.status}{why}. It goes on; get_run waits for its end.")
    if not parts:
        parts.append("The run ended without a text.")
    return TextContent(text="\n\n".join(parts))
