"""What traces and metrics see of a turn: its steps and tool calls, whichever engine plays them."""

from dataclasses import replace
from functools import partial

from nova_workers.clock import Clock
from nova_workers.contracts.engine import EngineCallbacks, StepRecord, StepVerdict, ToolCall
from nova_workers.observability.metrics import Metrics
from nova_workers.observability.tracing import Tracing

__all__ = ["observed"]


def observed(callbacks: EngineCallbacks, *, tracing: Tracing, metrics: Metrics, clock: Clock) -> EngineCallbacks:
    """Return callbacks that do the same and are seen.

    Each step is a span from the boundary before it until it is committed, under the span that is current when it ends.
    """
    watch = _StepWatch(callbacks, tracing, metrics, clock)
    return replace(
        callbacks,
        on_step=watch.on_step,
        on_tool_result=watch.on_tool_result,
        subagent=None if callbacks.subagent is None else watch.subagent,
    )


class _StepWatch:
    """Knows when the present step began."""

    def __init__(self, callbacks: EngineCallbacks, tracing: Tracing, metrics: Metrics, clock: Clock) -> None:
        self._callbacks = callbacks
        self._tracing = tracing
        self._metrics = metrics
        self._clock = clock
        self._began_at = clock.now()

    async def on_step(self, step: StepRecord) -> StepVerdict:
        verdict: StepVerdict = "continue"
        if self._callbacks.on_step is not None:
            verdict = await self._callbacks.on_step(step)
        ended_at = self._clock.now()
        self._tracing.record(
            "nova.step",
            start=self._began_at,
            end=ended_at,
            parent=None,
            attributes={
                "nova.step": step.index,
                "nova.step.final": step.final,
                "nova.step.tool_calls": len(step.tool_calls),
                "gen_ai.response.model": step.model,
                "gen_ai.usage.input_tokens": step.usage.input_tokens,
                "gen_ai.usage.output_tokens": step.usage.output_tokens,
            },
        )
        self._began_at = ended_at
        return verdict

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        await self._count(self._callbacks, call, summary)

    def subagent(self, call_id: str, name: str) -> EngineCallbacks:
        """Of a nested turn the tool calls are counted; its steps are no steps of the run."""
        assert self._callbacks.subagent is not None  # noqa: S101 - else this is not a callback
        nested = self._callbacks.subagent(call_id, name)
        return replace(nested, on_tool_result=partial(self._count, nested))

    async def _count(self, callbacks: EngineCallbacks, call: ToolCall, summary: str) -> None:
        self._metrics.tool_calls.labels(call.status).inc()
        if callbacks.on_tool_result is not None:
            await callbacks.on_tool_result(call, summary)
