"""The SDK's request handler over the service. Its default one keeps tasks and streams in the memory of its process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, NoReturn, TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.message import Message as ProtoMessage
from redis.exceptions import RedisError
from starlette.requests import Request

from nova_workers.base.errors import NovaError

from ...errors import outcome_of, problem
from .cards import card_of
from .errors import error_of
from .exchange import Exchange

_EXCHANGE: Final = "exchange"
_Result = TypeVar("_Result")


class ContextBuilder(ServerCallContextBuilder):
    """Gives the handler the exchange that a route made, and the SDK the headers."""

    def build(self, request: Request) -> ServerCallContext:
        """Return the context of a request."""
        return ServerCallContext(state=context_state(request))


def context_state(request: Request, exchange: Exchange | None = None) -> dict[str, Any]:
    """Return the state of a request's context, which is the same each time; with the exchange when it is made."""
    if exchange is not None:
        request.state.a2a = {_EXCHANGE: exchange, "headers": dict(request.headers)}
    return request.state.a2a


def refusal_in(request: Request) -> NovaError | None:
    """Return the error of ours with which a request was refused, for a binding that has HTTP's statuses."""
    return getattr(request.state, "a2a_refused", None)


class FleetRequestHandler(RequestHandler):
    """Answers with runs of the fleet. It has no state: the exchange of each request is in its context."""

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """Send a message to the agent, or answer what a task asks."""
        return await _asked(params, context, lambda exchange: exchange.send(params))

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """Return a task."""
        length = params.history_length if params.HasField("history_length") else None
        return await _asked(params, context, lambda exchange: exchange.task(params.id, history_length=length))

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """Cancel a task."""
        return await _asked(params, context, lambda exchange: exchange.cancel(params.id))

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the agent's tasks."""
        return await _asked(params, context, lambda exchange: exchange.list(params))

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """Return the agent's own card."""

        async def card(exchange: Exchange) -> AgentCard:
            return card_of(exchange.door.request, await exchange.door.agent(exchange.agent_id))

        return await _asked(params, context, card)

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Never called: streams are responses of our own, with permits and heartbeats (`routes`)."""
        _elsewhere()
        yield  # pyright: ignore[reportUnreachable] - makes it the generator that the SDK declares

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Never called, as above."""
        _elsewhere()
        yield  # pyright: ignore[reportUnreachable] - makes it the generator that the SDK declares

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Let an address get the changes of a task."""
        return await _asked(params, context, lambda exchange: exchange.put_push(params))

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Return a push notification configuration."""
        return await _asked(params, context, lambda exchange: exchange.push(params.task_id, params.id))

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Return the push notification configurations of a task. They are few: all of them are one page."""
        found = await _asked(params, context, lambda exchange: exchange.pushes(params.task_id))
        return ListTaskPushNotificationConfigsResponse(configs=found)

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Delete a push notification configuration."""
        await _asked(params, context, lambda exchange: exchange.delete_push(params.task_id, params.id))


async def _asked(
    params: ProtoMessage, context: ServerCallContext, ask: Callable[[Exchange], Awaitable[_Result]]
) -> _Result:
    """Return the result of a request whose required fields are there.

    Raises:
        A2AError: It is refused.
    """
    validate_proto_required_fields(params)
    exchange: Exchange = context.state[_EXCHANGE]
    try:
        return await ask(exchange)
    except (NovaError, RedisError) as error:
        refusal = outcome_of(error, path=exchange.door.request.url.path)
        exchange.door.request.state.a2a_refused = refusal
        raise error_of(problem(refusal)) from error


def _elsewhere() -> NoReturn:
    raise AssertionError("unreachable: the routes answer requests for streams")
