"""Model requests as steps of the journal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from nova_workers.contracts.native import CODE_STEP
from nova_workers.contracts.user_agents import ModelUse, Operation
from nova_workers.sdk.adapters.pydantic_ai.together import Together
from nova_workers.sdk.declaration import ToolOptions
from nova_workers.sdk.durable import Journal, StepFunction, Used, Wanted, step_value

MODEL_STEP: Final = "model"
"""The name of a step that is a model request."""


class RecordedModel(WrapperModel):
    """Asks a model what the journal does not have, and emits the text of the answer as it comes.

    The request is made between two steps, where text is streamed, as that of an engine's model is; the step has its
    answer.
    """

    def __init__(
        self, wrapped: Model, journal: Journal, together: Together, emit: Callable[[str], None] | None
    ) -> None:
        super().__init__(wrapped)
        self._journal = journal
        self._together = together
        self._emit = emit

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the answer."""
        return await self._answer(messages, model_settings, model_request_parameters, None)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Return the answer once it is there, as a stream."""
        response = await self._answer(messages, model_settings, model_request_parameters, run_context)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)

    async def _answer(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None,
    ) -> ModelResponse:
        fresh: Used[Any] | None = None
        if self._journal.recorded() is None:
            response = await self._ask(messages, settings, parameters, run_context)
            fresh = Used(ModelMessagesTypeAdapter.dump_python([response], mode="json"), (_use(response),))
        function = StepFunction(f"The step {MODEL_STEP!r}", lambda: fresh, False, ToolOptions())
        operation = Operation(name=CODE_STEP, input={"name": MODEL_STEP})
        kept = await self._together.execute(Wanted(self._journal, operation, step_value, function))
        (response,) = ModelMessagesTypeAdapter.validate_python(kept)
        if not isinstance(response, ModelResponse):
            raise TypeError(f"The journal has a {type(response).__name__} where a model answered.")
        return response

    async def _ask(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None,
    ) -> ModelResponse:
        if self._emit is None:
            return await self.wrapped.request(messages, settings, parameters)
        async with self.wrapped.request_stream(messages, settings, parameters, run_context) as stream:
            async for event in stream:
                if text := _text_of(event):
                    self._emit(text)
            return stream.get()


def _text_of(event: ModelResponseStreamEvent) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)):
            return text
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


def _use(response: ModelResponse) -> ModelUse:
    usage = response.usage
    return ModelUse(
        model=(response.model_name or "")[:200],
        provider=response.provider_name,
        # Of this library the sum, of which these are parts.
        input_tokens=max(usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens, 0),
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.details.get("reasoning_tokens", 0),
    )
