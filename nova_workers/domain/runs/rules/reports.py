"""Reports claims and ends of runs to followers, metrics, traces and the log."""

from __future__ import annotations

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.contracts import events as live
from nova_workers.contracts.content import storable
from nova_workers.contracts.runs import Claim, Finish, Finished
from nova_workers.domain.streams.rules.endings import RunEnding, message_digest
from nova_workers.domain.streams.rules.publisher import RunEvents

_log = structlog.get_logger(__name__)


class RunReports:
    """Reports claims and ends of runs."""

    def __init__(self, metrics: Metrics, tracing: Tracing, clock: Clock) -> None:
        self._metrics = metrics
        self._tracing = tracing
        self._clock = clock

    def announce(self, claim: Claim, finish: Finish, finished: Finished, events: RunEvents) -> None:
        """Publish the committed end of a run to its followers."""
        if finish.error is not None:
            events.emit(
                live.StreamError(
                    error=finish.error.message,
                    kind=finish.error.kind,
                    retryable=finish.error.retryable,
                    partial=bool(finish.text),
                )
            )
        end = live.StreamEnd(
            run_id=claim.run_id,
            final=True,
            status=finish.status,
            stop_reason=finish.stop_reason,
            limit=finish.limit,
            text=finish.text,
            usage=live.Usage.of(finished.usage),
        )
        events.end(end, _ending(claim, finish, finished))

    def claimed(self, claim: Claim) -> None:
        """Measure and log that a run was claimed."""
        metrics, clock = self._metrics, self._clock
        metrics.runs_claimed.labels(claim.queue, "first" if claim.attempt == 1 else "resumed").inc()
        metrics.claim_latency_s.labels(claim.queue).observe(claim.claim_latency_s)
        if claim.attempt == 1:
            metrics.accept_to_start_s.labels(claim.queue).observe(
                max((clock.now() - claim.created_at).total_seconds(), 0.0)
            )
            self._tracing.record("nova.queue_wait", start=claim.created_at, end=clock.now(), parent=claim.traceparent)
        _log.debug("run.claimed", queue=claim.queue, waited_ms=round(claim.claim_latency_s * 1000))

    def finished(self, claim: Claim, finish: Finish, finished: Finished) -> None:
        """Measure and log that a run has ended."""
        metrics = self._metrics
        metrics.runs_finished.labels(finish.status, claim.queue).inc()
        metrics.run_duration_s.labels(finish.status).observe(finish.duration_ms / 1000)
        metrics.record_usage(finish.model, finished.usage, model_calls=finished.model_calls)
        if finish.error is not None and finish.error.kind == "worker_lost":
            metrics.recoveries.labels("failed").inc()
        if finish.first_token_at is not None and claim.attempt == 1:
            metrics.first_token_s.observe(max((finish.first_token_at - claim.created_at).total_seconds(), 0.0))
        _log.info(
            "run.finished",
            status=finish.status,
            stop_reason=finish.stop_reason,
            duration_ms=finish.duration_ms,
            waited_ms=round(claim.claim_latency_s * 1000),
            error=None if finish.error is None else finish.error.kind,
        )


def span_attributes(claim: Claim) -> dict[str, str | int]:
    """Return the attributes of a run's span."""
    return {
        "nova.run.id": claim.run_id,
        "nova.thread.id": claim.thread_id,
        "nova.agent.id": claim.agent_id,
        "nova.attempt": claim.attempt,
        "nova.queue": claim.queue,
    }


def _ending(claim: Claim, finish: Finish, finished: Finished) -> RunEnding | None:
    """Return the ending of a plain run, for those who wait for it; None of another, which they read."""
    digest = message_digest(claim.content) if finish.status == "succeeded" and finish.output is None else None
    if digest is None or storable(finish.text) != finish.text:
        return None
    return RunEnding(
        message=digest,
        agent_id=claim.agent_id,
        agent_version=claim.agent_version,
        turn_id=claim.turn_id,
        cancel_requested_at=finished.cancel_requested_at,
        started_at=finished.started_at,
        finished_at=finished.finished_at,
    )
