"""The tools that a key may use: one for each agent, and those that look after runs."""

from typing import Any

from mcp.types import ListToolsResult, PaginatedRequestParams, Tool, ToolAnnotations
from pydantic import BaseModel

from nova_workers.contracts.http.history import SearchResult
from nova_workers.contracts.http.wire import AgentView

from .calls import (
    ASK,
    MAX_LISTED,
    AnswerArguments,
    AskArguments,
    CancelArguments,
    GetRunArguments,
    ListAgentsArguments,
    SearchArguments,
)
from .protocol import Context, paging
from .results import OUTCOME_SCHEMA
from .runs import runs_of


def _schema(arguments: type[BaseModel]) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


_ASK_SCHEMA = _schema(AskArguments)
_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_FIXED = (
    Tool(
        name="list_agents",
        description="List the agents of the fleet, with the tool of each.",
        input_schema=_schema(ListAgentsArguments),
        annotations=_READS,
    ),
    Tool(
        name="get_run",
        description="Get the state of a run, and its answer if it has ended. With wait_s, wait for the end.",
        input_schema=_schema(GetRunArguments),
        output_schema=OUTCOME_SCHEMA,
        annotations=_READS,
    ),
    Tool(
        name="answer",
        description=(
            "Answer a question of a run with `text`, or permit or refuse a call with `approve`. Ask your user first. "
            "Returns what the run does then."
        ),
        input_schema=_schema(AnswerArguments),
        output_schema=OUTCOME_SCHEMA,
        # It may permit a call that deletes: clients that ask for such tools must ask here.
        annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=False),
    ),
    Tool(
        name="cancel",
        description="Stop a run. It keeps what it has done; one that has ended stays as it is.",
        input_schema=_schema(CancelArguments),
        output_schema=OUTCOME_SCHEMA,
        annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=True),
    ),
    Tool(
        name="search_conversations",
        description="Search what people and agents said, best first, by words and by meaning.",
        input_schema=_schema(SearchArguments),
        output_schema=SearchResult.model_json_schema(mode="serialization"),
        annotations=_READS,
    ),
)


async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    """Answer ``tools/list``: those of agents in the order of their ids, after all others.

    Raises:
        InvalidCursor: The cursor is none of this list.
    """
    runs = runs_of(context)
    if not runs.may("runs"):
        return ListToolsResult(tools=[])
    wanted = paging(params, MAX_LISTED)
    page = await runs.agents(wanted)
    fixed = _FIXED if wanted.cursor is None else ()
    return ListToolsResult(tools=[*fixed, *map(_tool, page.items)], next_cursor=page.next_cursor)


def _tool(agent: AgentView) -> Tool:
    about = f" {agent.spec.description}" if agent.spec.description else ""
    return Tool(
        name=f"{ASK}{agent.id}",
        title=agent.spec.name,
        description=f"Ask the agent {agent.spec.name}.{about}",
        input_schema=_ASK_SCHEMA,
        output_schema=OUTCOME_SCHEMA,
        annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=False, open_world_hint=True),
    )
