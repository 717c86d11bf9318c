"""`nova mcp-master`: an MCP server on stdin and stdout, whose client is the master of an orchestration."""

import asyncio
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from nova_workers.base.errors import NovaError
from nova_workers.base.release import release
from nova_workers.base.stopping import stop_tasks
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.orchestrations.external_master import ExternalMaster
from nova_workers.cli.orchestrations.local_tools import ASK_USER, LOCAL_TOOLS, RUN_BASH, ask_user, run_bash
from nova_workers.contracts.http.orchestrations import MasterReply, OrchestrationCreate

app = typer.Typer(add_completion=False, rich_markup_mode=None)

PROGRESS_EVERY_S = 10.0
"""Clients end a call of which they hear nothing for 60 s, by default."""

_INSTRUCTIONS = """\
You are the master of a tree of agents. Read, plan, and give parts of the work to children with spawn_child or
spawn_children_parallel: say all that a child must know, since it knows nothing of this conversation. A call that waits
returns when the child has a result or asks you something; answer with respond_to_child. wait_for_message returns what
other children sent. Call task_complete with a summary when all parts are done.
"""


@remote(app, "mcp-master")
async def mcp_master(
    session: Session,
    orchestration: Annotated[
        str | None, typer.Option(help="Take up this one, instead of opening another at the first call.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="What it is for, for people. Default: this directory.")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent that bounds the tree. Default: nova.")] = None,
    token_budget: Annotated[int | None, typer.Option(min=1, help="Tokens of all agents together.")] = None,
    cost_budget: Annotated[float | None, typer.Option(metavar="USD", help="Cost of all agents together.")] = None,
    time_budget: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time until its end.")] = None,
) -> None:
    """Serve MCP on stdin and stdout: your own Claude Code, or any MCP client, leads agents of the fleet.

    An orchestration is opened at the first call of a tool. It goes on when this program ends, until it is taken up with
    --orchestration, completed or killed, or until no call came for the configured time. Messages for people go to
    stderr.
    """
    options = given(
        task=task or f"Led from {socket.gethostname()}:{Path.cwd()}",
        master="external",
        agent_id=agent,
        token_budget=token_budget,
        cost_budget_usd=cost_budget,
        time_budget_s=time_budget,
    )
    wanted = build(OrchestrationCreate, options)
    master = ExternalMaster(session.client.orchestrations, wanted)
    if orchestration is not None:
        await master.take_up(orchestration)
    described = (await session.client.orchestrations.master_tools()).items
    tools = [Tool(name=tool.name, description=tool.description, input_schema=tool.input_schema) for tool in described]
    server = build_server(master, [*tools, *LOCAL_TOOLS])
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
    if master.orchestration_id is not None:
        again = f"nova mcp-master --orchestration {master.orchestration_id}"
        session.out.note(f"{master.orchestration_id} goes on; take it up again with `{again}`.")


async def _with_progress(
    context: ServerRequestContext[Any], master: ExternalMaster, call: Coroutine[Any, Any, MasterReply]
) -> MasterReply:
    """Return the result of a call. While it waits, the client gets what the agents do, if it asked for progress."""
    calling = asyncio.create_task(call)
    waited_s = 0.0
    try:
        while not (await asyncio.wait((calling,), timeout=PROGRESS_EVERY_S))[0]:
            waited_s += PROGRESS_EVERY_S
            await context.session.report_progress(waited_s, message=await master.describe(waited_s))
        return calling.result()
    finally:
        await stop_tasks((calling,))


def build_server(master: ExternalMaster, tools: list[Tool]) -> Server[Any]:
    """Return a server with the tools of a master."""

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        arguments = params.arguments or {}
        try:
            if params.name == RUN_BASH:
                reply = await run_bash(arguments)
            elif params.name == ASK_USER:
                reply = await ask_user(context, arguments)
            else:
                reply = await _with_progress(context, master, master.call(params.name, arguments))
        except NovaError as error:
            reply = MasterReply(text=error.message, failed=True)
        return CallToolResult(content=[TextContent(text=reply.text)], is_error=reply.failed)

    return Server(
        "nova", version=release(), instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )
