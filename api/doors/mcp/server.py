"""The server of the protocol. It keeps nothing: one serves all requests of a process."""

from typing import Any

from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import NotificationOptions
from mcp.types import CallToolRequestParams, ServerCapabilities
from redis.exceptions import RedisError

from nova_workers.base.errors import NovaError, Unstorable
from nova_workers.base.release import release
from nova_workers.ledger.auditing import acting_as
from nova_workers.ledger.visibility import one_tenant

from ...errors import outcome_of
from . import library, tasks
from .calls import call_tool
from .protocol import PATH, TASKS, Context, TaskParams, TaskUpdateParams, refused
from .runs import runs_of
from .tools import list_tools

_LISTED_FOR_MS = 60_000
"""How long a client may use a list. Nothing tells it of changes."""

_INSTRUCTIONS = """\
A fleet of AI agents. Each has a tool, ask_<id>: the agent works on your message and answers, which may take long. The
result has a thread_id, with which a further call continues the conversation, and a run_id. If the run has not ended,
get_run waits for it. If it asks something, ask your user and give the answer with the tool answer.
"""


class _FleetServer(Server[Any]):
    """A server that sends no changes of lists, though it serves subscriptions: those are for tasks."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        """Return the capabilities that the server offers."""
        offered = super().get_capabilities(
            notification_options, experimental_capabilities, extensions, protocol_version=protocol_version
        )
        for listed in (offered.tools, offered.prompts, offered.resources):
            if listed is not None:
                listed.list_changed = False
        if offered.resources is not None:
            offered.resources.subscribe = False
        return offered


def build_server() -> Server[Any]:
    """Return the server of a process."""
    listed = CacheHint(ttl_ms=_LISTED_FOR_MS, scope="private")
    server = _FleetServer(
        "nova",
        version=release(),
        title="Nova Workers",
        instructions=_INSTRUCTIONS,
        cache_hints={
            "server/discover": listed,
            "tools/list": listed,
            "prompts/list": listed,
            "resources/list": listed,
            "resources/templates/list": listed,
            "resources/read": CacheHint(ttl_ms=0, scope="private"),
        },
        # No argument is mirrored in a header. Without this, each call lists all tools to find that out.
        get_tool_input_schema=lambda _: None,
        on_list_tools=list_tools,
        on_list_resources=library.list_resources,
        on_list_resource_templates=library.list_resource_templates,
        on_read_resource=library.read_resource,
        on_list_prompts=library.list_prompts,
        on_get_prompt=library.get_prompt,
        on_subscriptions_listen=tasks.listen,
    )
    # Its results have a shape more than those that the constructor's argument may return.
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", TaskParams, tasks.get_task)
    server.add_request_handler("tasks/update", TaskUpdateParams, tasks.update_task)
    server.add_request_handler("tasks/cancel", TaskParams, tasks.cancel_task)
    # Innermost: the SDK's own, which begins a span, sees the errors as the client gets them.
    server.middleware.append(_as_caller)
    return server


async def _as_caller(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Bind what a request reads and writes to its caller, and turn our errors into those of the protocol."""
    caller = runs_of(ctx).caller
    with one_tenant(caller.tenant_id), acting_as(caller.actor()):
        try:
            return await call_next(ctx)
        except Unstorable:
            # A defect of ours: the SDK logs its traceback, and answers without it.
            raise
        except (NovaError, RedisError) as error:
            raise refused(outcome_of(error, path=PATH)) from error
