"""Calls of tools: of an agent's, and of those that look after runs."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from nova_workers.base.errors import Conflict, InvalidInput, NotFound, Rejected, missing
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.http.history import MAX_HITS, Moment, SearchQuery
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import MAX_ANSWER_CHARS, RunAnswer
from nova_workers.domain.search.sql.messages import MessageFilter

from ...errors import problem
from ...pagination import PageRequest
from ...routes.workspace.search import found_messages
from ..questions import open_questions
from .protocol import Context, is_modern, reason_of, takes_questions, takes_tasks
from .questions import answers_to, input_requests
from .results import progress_of, result_of
from .runs import Runs, runs_of
from .tasks import task_of

ASK = "ask_"
"""Before the id of an agent, it is the name of its tool: no other tool begins with it."""

REQUEST_ID_META = "nova-workers/request-id"
"""In `_meta` of a call, as `request_id` of its arguments: `nova mcp` repeats requests with it."""

DEFAULT_WAIT_S = 50.0
"""Less than the 60 s after which clients end a call of which they heard nothing."""

MAX_LISTED = 100

_STATE = re.compile(r"(run_[0-9A-Z]{26}):[0-9]{1,9}", re.ASCII)

_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
_WaitS = Annotated[
    float | None,
    Field(ge=0, le=86_400, description="Seconds to wait for the end. Afterwards the run goes on; get_run waits again."),
]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AskArguments(_Arguments):
    """What an agent's tool takes."""

    message: Annotated[str, Field(min_length=1, description="What the agent is asked, with all that it must know.")]
    thread_id: Annotated[_Id | None, Field(description="Continue this conversation. Default: a new one.")] = None
    request_id: Annotated[
        Annotated[str, StringConstraints(min_length=1, max_length=1_000)] | None,
        Field(description="Any name for this request. The same one again returns the first run: nothing runs twice."),
    ] = None
    wait_s: _WaitS = None


class ListAgentsArguments(_Arguments):
    """What ``list_agents`` takes."""

    cursor: Annotated[str | None, Field(max_length=1_000, description="`next_cursor` of the result before.")] = None


class GetRunArguments(_Arguments):
    """What ``get_run`` takes."""

    run_id: _Id
    wait_s: _WaitS = 0


class AnswerArguments(_Arguments):
    """What ``answer`` takes."""

    run_id: _Id
    wait_id: Annotated[
        Annotated[str, StringConstraints(pattern=r"^wait_[0-9A-Z]{26}$")] | None,
        Field(description="Which question, if the run asks several."),
    ] = None
    text: Annotated[
        Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ANSWER_CHARS)] | None,
        Field(description="The answer to a question."),
    ] = None
    approve: Annotated[bool | None, Field(description="Whether a call is permitted.")] = None
    wait_s: _WaitS = None


class CancelArguments(_Arguments):
    """What ``cancel`` takes."""

    run_id: _Id


class SearchArguments(_Arguments):
    """What ``search_conversations`` takes."""

    query: SearchQuery
    agent_id: Annotated[AgentId | None, Field(description="Only conversations of this agent.")] = None
    since: Annotated[Moment | None, Field(description="Only what was said from this time or date on.")] = None
    until: Annotated[Moment | None, Field(description="Only what was said before.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_HITS)] = 10


async def call_tool(context: Context, params: CallToolRequestParams) -> HandlerResult:
    """Answer ``tools/call``. What the caller can fix is a result with the reason, as its model reads only results."""
    try:
        if params.name.startswith(ASK):
            return await _ask(context, params.name.removeprefix(ASK), params)
        call = _CALLS.get(params.name)
        if call is None:
            raise _unknown(params.name)
        return await call(context, params.arguments or {})
    except ValidationError as error:
        return _error(InvalidInput(f"{params.name} cannot use its arguments: {_explain(error)}", field=_field(error)))
    except Rejected as error:
        return _error(error)


async def _ask(context: Context, agent_id: str, params: CallToolRequestParams) -> HandlerResult:
    runs, given = runs_of(context), AskArguments.model_validate(params.arguments or {})
    if is_modern(context) and params.request_state is not None:
        run = await _resumed(runs, agent_id, params)
    else:
        try:
            run = await runs.submit(
                given.message,
                agent_id=agent_id,
                thread_id=given.thread_id,
                request_id=given.request_id or _request_id(context.meta),
            )
        except NotFound as error:
            if error.fields.get("kind") == "agent":
                raise _unknown(params.name) from error
            raise
    if takes_tasks(context):
        return {"resultType": "task"} | task_of(run)
    run = await _settled(context, runs, run, given.wait_s)
    if takes_questions(context) and open_questions(run):
        # The round tells a client that it is asked anew. It says nothing: answers name their waits.
        state = f"{run.id}:{run.attempt}"
        return {"resultType": "input_required", "inputRequests": input_requests(run), "requestState": state}
    return await _result(runs, run)


async def _resumed(runs: Runs, agent_id: str, params: CallToolRequestParams) -> RunView:
    """Return the run that a call was for which the client makes again, with answers to what it was asked.

    Raises:
        MCPError: The state that it returned is none of this tool.
    """
    state = _STATE.fullmatch(params.request_state or "")
    try:
        run = None if state is None else await runs.get(state[1])
    except NotFound:
        run = None
    if run is None or run.agent_id != agent_id:
        raise MCPError(INVALID_PARAMS, "requestState is none that this tool returned.")
    responses = {
        wait_id: response.model_dump(by_alias=True) for wait_id, response in (params.input_responses or {}).items()
    }
    for answer in answers_to(run, responses, by=runs.caller.key_name):
        try:
            run = await runs.door.answer(run.id, answer)
        except Conflict:
            # The same request again, whose first result was lost; or another answer came first.
            run = await runs.get(run.id)
    return run


async def _get_run(context: Context, arguments: Mapping[str, Any]) -> CallToolResult:
    runs, given = runs_of(context), GetRunArguments.model_validate(arguments)
    return await _result(runs, await _settled(context, runs, await runs.get(given.run_id), given.wait_s))


async def _answer(context: Context, arguments: Mapping[str, Any]) -> CallToolResult:
    runs, given = runs_of(context), AnswerArguments.model_validate(arguments)
    run = await runs.get(given.run_id)
    answer = RunAnswer(wait_id=given.wait_id, text=given.text, approve=given.approve, by=runs.caller.key_name)
    return await _result(runs, await _settled(context, runs, await runs.door.answer(run.id, answer), given.wait_s))


async def _cancel(context: Context, arguments: Mapping[str, Any]) -> CallToolResult:
    return result_of(await runs_of(context).cancel(CancelArguments.model_validate(arguments).run_id))


async def _list_agents(context: Context, arguments: Mapping[str, Any]) -> CallToolResult:
    runs, given = runs_of(context), ListAgentsArguments.model_validate(arguments)
    page = await runs.agents(PageRequest(given.cursor, MAX_LISTED))
    agents = [
        {
            "id": agent.id,
            "name": agent.spec.name,
            "description": agent.spec.description,
            "tool": f"{ASK}{agent.id}",
        }
        for agent in page.items
    ]
    text = "\n".join(f"{agent['tool']}: {agent['name']}. {agent['description']}" for agent in agents)
    return CallToolResult(
        content=[TextContent(text=text or "There is no agent.")],
        structured_content={"agents": agents, "next_cursor": page.next_cursor},
    )


async def _search(context: Context, arguments: Mapping[str, Any]) -> CallToolResult:
    runs, given = runs_of(context), SearchArguments.model_validate(arguments)
    runs.need("runs")
    which = MessageFilter(runs.caller.tenant_id, given.agent_id, since=given.since, until=given.until)
    found = await found_messages(runs.state, which, given.query, limit=given.limit)
    text = "\n\n".join(
        f"{hit.said_at:%Y-%m-%d %H:%M} {hit.role} in {hit.thread_id} of {hit.agent_id}:\n{hit.excerpt}"
        for hit in found.items
    )
    return CallToolResult(
        content=[TextContent(text=text or "Nothing was found.")], structured_content=found.model_dump(mode="json")
    )


_CALLS: Mapping[str, Callable[[Context, Mapping[str, Any]], Awaitable[CallToolResult]]] = {
    "list_agents": _list_agents,
    "get_run": _get_run,
    "answer": _answer,
    "cancel": _cancel,
    "search_conversations": _search,
}


async def _result(runs: Runs, run: RunView) -> CallToolResult:
    return result_of(run, await runs.files(run))


async def _settled(context: Context, runs: Runs, run: RunView, wait_s: float | None) -> RunView:
    """Return a run once it has ended or asks something, or when the client has waited for long enough."""

    async def report(run: RunView, waited_s: float) -> None:
        await context.session.report_progress(waited_s, message=progress_of(run, await runs.activity(run)))

    longest_s = runs.state.services.settings.api.wait_timeout_s
    wants_progress = (context.meta or {}).get("progress_token") is not None
    if wait_s is None:
        # Who asked for progress hears of the call every ten seconds.
        wait_s = longest_s if wants_progress else DEFAULT_WAIT_S
    return await runs.settled(run, wait_s=min(wait_s, longest_s), on_wait=report if wants_progress else None)


def _request_id(meta: Mapping[str, Any] | None) -> str | None:
    value = (meta or {}).get(REQUEST_ID_META)
    return value if isinstance(value, str) else None


def _unknown(tool: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"Unknown tool: {tool[:80]}", reason_of(problem(missing("tool", tool[:80]))))


def _error(error: Rejected) -> CallToolResult:
    """Return a refusal: in words for a model, with its code for a program."""
    return CallToolResult(
        content=[TextContent(text=error.message)], structured_content=reason_of(problem(error)), is_error=True
    )


def _field(error: ValidationError) -> str | None:
    return ".".join(map(str, error.errors(include_url=False)[0]["loc"])) or None


def _explain(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    )
