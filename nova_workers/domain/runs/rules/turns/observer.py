"""Traces and counts a turn's steps and tool calls for every engine."""

from nova_workers.base.clock import Clock
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.contracts.engine import ForwardingListener, StepRecord, StepVerdict, ToolCall, TurnListener


class CountedCalls(ForwardingListener):
    """Counts the tool calls of a turn and its subagents by status."""

    def __init__(self, to: TurnListener, metrics: Metrics) -> None:
        super().__init__(to)
        self._metrics = metrics

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        """Count a call."""
        self._metrics.tool_calls.labels(call.status).inc()
        await self._to.on_tool_result(call, summary)

    def subagent(self, call_id: str, name: str) -> TurnListener:
        """Count the calls of a subagent as well."""
        return CountedCalls(self._to.subagent(call_id, name), self._metrics)


class ObservedTurn(CountedCalls):
    """Records each step as a span, and counts tool calls.

    A span lasts from the end of the previous step until the step is committed. Its parent is the current span. Steps of
    a subagent are not steps of the run: only their calls are counted.
    """

    def __init__(self, to: TurnListener, *, tracing: Tracing, metrics: Metrics, clock: Clock) -> None:
        super().__init__(to, metrics)
        self._tracing = tracing
        self._clock = clock
        self._began_at = clock.now()

    async def on_step(self, step: StepRecord) -> StepVerdict:
        """Record the step."""
        verdict = await self._to.on_step(step)
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
