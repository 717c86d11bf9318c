"""Tools of an external master that work on its own machine: a shell, and questions to its user."""

from __future__ import annotations

import os
from typing import Annotated, Any

from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import Tool
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nova_workers.base.child_process import Bounds, run_child
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.http.orchestrations import MasterReply

ASK_USER = "ask_user"
RUN_BASH = "run_bash"
_TIMEOUT_S = 600.0
_KEPT_BYTES = 30_000


class _Input(TrueNumbers):
    model_config = ConfigDict(extra="forbid")


class _RunBash(_Input):
    command: Annotated[str, Field(min_length=1, max_length=100_000)]
    timeout: Annotated[float, Field(gt=0, le=7_200, description="Most seconds that it may take.")] = _TIMEOUT_S
    cwd: Annotated[str | None, Field(max_length=1_000, description="Leave it out for yours.")] = None


class _AskUser(_Input):
    question: Annotated[str, Field(min_length=1, max_length=10_000)]
    options: Annotated[
        list[str], Field(max_length=20, description="Answers to offer. The user may give another one.")
    ] = Field(default_factory=list[str])
    only_options: Annotated[bool, Field(description="Take no answer but one of the options.")] = False


def _tool(name: str, description: str, form: type[BaseModel]) -> Tool:
    schema = form.model_json_schema()
    schema.pop("title", None)
    return Tool(name=name, description=description, input_schema=schema)


LOCAL_TOOLS = (
    _tool(ASK_USER, "Ask the user directly, with options to choose from or for any text.", _AskUser),
    _tool(RUN_BASH, "Run a command with bash on this machine, and return what it prints, errors included.", _RunBash),
)


async def run_bash(arguments: dict[str, Any]) -> MasterReply:
    """Run a command as the user of this process. The MCP client decides whether it may."""
    try:
        given = _RunBash.model_validate(arguments)
    except ValidationError as error:
        return _refused(RUN_BASH, error)
    bounds = Bounds(given.timeout, head_bytes=_KEPT_BYTES // 2, tail_bytes=_KEPT_BYTES // 2)
    try:
        done = await run_child(["bash", "-c", given.command], bounds, env=os.environ, cwd=given.cwd, with_errors=True)
    except OSError as error:
        return MasterReply(text=f"The command cannot be started: {error}", failed=True)
    if done.exit_code is None:
        return MasterReply(text=f"{done.text()}\nIt was ended after {given.timeout:g} s.", failed=True)
    if done.exit_code:
        return MasterReply(text=f"{done.text()}\nExit code {done.exit_code}.", failed=True)
    return MasterReply(text=done.text() or "It printed nothing.")


async def ask_user(context: ServerRequestContext[Any], arguments: dict[str, Any]) -> MasterReply:
    """Ask the user through the MCP client, if it can show questions."""
    try:
        given = _AskUser.model_validate(arguments)
    except ValidationError as error:
        return _refused(ASK_USER, error)
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.elicitation is None or not context.session.can_send_request:
        return MasterReply(
            text="This client cannot show questions of a server. Ask the user in your own conversation.", failed=True
        )
    try:
        result = await context.session.elicit_form(given.question, _answer_form(given), context.request_id)
    except MCPError as error:
        return MasterReply(text=f"The question was not shown: {error}", failed=True)
    content = result.content or {}
    answer = str(content.get("other") or content.get("answer") or "").strip()
    if result.action != "accept" or not answer:
        return MasterReply(text="The user did not answer.", failed=True)
    return MasterReply(text=answer)


def _answer_form(given: _AskUser) -> dict[str, Any]:
    """Return the schema of the form that asks a question: with options a choice, and a field for any other answer."""
    answer: dict[str, Any] = {"type": "string", "title": "Answer"}
    if not given.options:
        return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    choice = answer | {"enum": given.options}
    if given.only_options:
        return {"type": "object", "properties": {"answer": choice}, "required": ["answer"]}
    return {"type": "object", "properties": {"answer": choice, "other": {"type": "string", "title": "Another answer"}}}


def _refused(tool: str, error: ValidationError) -> MasterReply:
    wrong = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors())
    return MasterReply(text=f"{tool}: {wrong}", failed=True)
