"""Every Prometheus metric of the fleet, declared once, with its unit.

Each process keeps its own: the API serves them on ``/metrics``, a worker on its own port. Counters of one
event are raised in one place, by the process that did it, so sums over processes are right. Gauges of the whole
fleet (runs by state, the queues) are set by the API when it is scraped; take their maximum, not their sum.

Label values are bounded: statuses, kinds, queue names, route templates, ids of models. Never an id of a run,
a thread or a tenant.
"""

from collections.abc import Mapping
from threading import Thread
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from nova_workers.base.observability.ports import TokenCounts
from nova_workers.base.vocabulary import EFFECT_KINDS, OPEN_RUNS, RUN_QUEUES, OutageReason, words_of

_FAST_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""The buckets: from a claim on an idle fleet (milliseconds) to a lease that had to expire (30 s)."""

_WAIT_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
"""Time queued: from an idle fleet to a backlog."""

_RUN_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200)
"""The buckets: from a scripted turn to an agent that works for hours."""

_MOST_MODELS: Final = 200
_OTHER_MODELS: Final = "other"


class Metrics:
    """The metrics of one process, on the registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._models: set[str] = set()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._declare_runs(registry)
        self._declare_fleet(registry)
        self._declare_model(registry)
        self._declare_effects(registry)
        self._declare_upkeep(registry)
        self._declare_triggers(registry)
        self._declare_deliveries(registry)
        self._declare_api(registry)
        self._show_what_alerts_watch()

    def _declare_runs(self, registry: CollectorRegistry) -> None:
        self.runs_accepted = Counter(
            "nova_runs_accepted_total", "Runs that are in the ledger.", ["queue", "source"], registry=registry
        )
        self.runs_claimed = Counter(
            "nova_runs_claimed_total",
            "Attempts that began. kind: first, or resumed after a lost worker or a drain.",
            ["queue", "kind"],
            registry=registry,
        )
        self.runs_suspended = Counter(
            "nova_runs_suspended_total", "Attempts that ended because the run waits.", ["queue"], registry=registry
        )
        self.runs_held = Counter(
            "nova_run_holds_total",
            "Attempts that ended because the model provider cannot be used, by reason as in nova_runs_held.",
            ["queue", "reason"],
            registry=registry,
        )
        self.runs_finished = Counter(
            "nova_runs_finished_total", "Runs that ended.", ["status", "queue"], registry=registry
        )
        self.claim_latency_s = Histogram(
            "nova_run_claim_latency_seconds",
            "From the latest time of queueing to the claim.",
            ["queue"],
            buckets=_WAIT_S,
            registry=registry,
        )
        self.accept_to_start_s = Histogram(
            "nova_run_accept_to_start_seconds",
            "From acceptance to the first claim.",
            ["queue"],
            buckets=_WAIT_S,
            registry=registry,
        )
        self.first_token_s = Histogram(
            "nova_run_first_token_seconds", "From acceptance to the first token.", buckets=_WAIT_S, registry=registry
        )
        self.run_duration_s = Histogram(
            "nova_run_duration_seconds",
            "From the first claim to the end.",
            ["status"],
            buckets=_RUN_S,
            registry=registry,
        )
        self.lease_losses = Counter(
            "nova_lease_losses_total",
            "Runs that a worker stopped because it no longer owned them, by reason.",
            ["reason"],
            registry=registry,
        )
        self.recoveries = Counter(
            "nova_run_recoveries_total",
            "Runs taken back from a lost worker. outcome: requeued or failed.",
            ["outcome"],
            registry=registry,
        )
        self.suspects = Counter(
            "nova_suspect_processes_total",
            "Child processes of a worker for a run that lost other workers. outcome: ended, or lost (it died).",
            ["outcome"],
            registry=registry,
        )
        self.doorbells = Counter(
            "nova_doorbells_total",
            "Doorbells. outcome: rung, lost (the reconciler rings again) or rerung.",
            ["queue", "outcome"],
            registry=registry,
        )

        self.foreign_messages = Counter(
            "nova_foreign_messages_total",
            "Messages that were dropped, since no process of this fleet sends them. source: queue, remote_control,"
            " notification or event. reason: unreadable, too_large, unknown_task, wrong_arguments, refused_command or"
            " failed.",
            ["source", "reason"],
            registry=registry,
        )

    def _declare_fleet(self, registry: CollectorRegistry) -> None:
        self.runs_in_flight = Gauge("nova_runs_in_flight", "Turns in this process.", registry=registry)
        self.worker_slots = Gauge("nova_worker_slots", "Most turns at once in this process.", registry=registry)
        self.server_serves = Gauge(
            "nova_server_serves",
            "1 while a server that this worker needs takes writes. server: postgres or redis.",
            ["server"],
            registry=registry,
        )
        self.runs_open = Gauge("nova_runs_open", "Fleet: runs that are not over.", ["status"], registry=registry)
        self.runs_held_now = Gauge(
            "nova_runs_held",
            "Fleet: queued runs whose model provider cannot be used. reason: down, key_missing, key_refused, quota,"
            " rate_limit or model_missing.",
            ["reason"],
            registry=registry,
        )
        self.queue_depth = Gauge("nova_queue_depth", "Fleet: queued runs.", ["queue"], registry=registry)
        self.queue_oldest_age_s = Gauge(
            "nova_queue_oldest_age_seconds", "Fleet: age of the oldest queued run.", ["queue"], registry=registry
        )
        self.overdue_age_s = Gauge(
            "nova_overdue_age_seconds",
            "Fleet: how long the oldest work has been due that is not done. what: effects, deliveries, triggers or"
            " waits.",
            ["what"],
            registry=registry,
        )
        self.event_lag_s = Histogram(
            "nova_event_lag_seconds",
            "From an event of a run until Redis has it; of the events that are sent together, the oldest.",
            buckets=_FAST_S,
            registry=registry,
        )
        self.loop_lag_s = Histogram(
            "nova_loop_lag_seconds",
            "How late the event loop ran a timer.",
            buckets=_FAST_S,
            registry=registry,
        )

    def _declare_model(self, registry: CollectorRegistry) -> None:
        self.tokens = Counter(
            "nova_tokens_total",
            "Tokens. kind: input, output, cache_read, cache_write; reasoning is part of output.",
            ["model", "kind"],
            registry=registry,
        )
        self.cost_usd = Counter(
            "nova_cost_usd_total", "US dollars, of models whose price is known.", ["model"], registry=registry
        )
        self.model_calls = Counter("nova_model_calls_total", "Model calls.", ["model"], registry=registry)
        self.model_retries = Counter(
            "nova_model_retries_total",
            "Model calls that failed and were made again. cause: transport, rate_limit, key or key_for_model.",
            ["model", "cause"],
            registry=registry,
        )
        self.model_fallbacks = Counter(
            "nova_model_fallbacks_total",
            "Turns that went on with another model.",
            ["model", "fallback"],
            registry=registry,
        )
        self.profile_cooldowns = Counter(
            "nova_model_profile_cooldowns_total",
            "Provider keys that were paused. reason: auth or rate_limit.",
            ["profile", "reason"],
            registry=registry,
        )
        self.breaker_open = Gauge(
            "nova_model_breaker_open",
            "1 while a model is not called, as last known to this process.",
            ["model"],
            registry=registry,
        )
        self.provider_rests = Gauge(
            "nova_provider_rests",
            "Fleet: keys of model providers that rest, and models that are not called. kind: key or model.",
            ["provider", "kind"],
            registry=registry,
        )
        self.rate_limit_wait_s = Histogram(
            "nova_model_rate_limit_wait_seconds",
            "Wait for the rate limit, of models that have one.",
            ["model"],
            buckets=_WAIT_S,
            registry=registry,
        )
        self.tool_calls = Counter("nova_tool_calls_total", "Tool calls that ended.", ["status"], registry=registry)

    def _declare_effects(self, registry: CollectorRegistry) -> None:
        self.effects = Counter(
            "nova_effects_total",
            "Effects that were worked on. outcome: done, retried, failed or released.",
            ["kind", "outcome"],
            registry=registry,
        )
        self.effect_duration_s = Histogram(
            "nova_effect_duration_seconds",
            "Time of one call of an effect's handler, which may do many effects.",
            ["kind"],
            buckets=_FAST_S,
            registry=registry,
        )

    def _declare_upkeep(self, registry: CollectorRegistry) -> None:
        self.backfilled = Counter(
            "nova_backfilled_total",
            "What the backfill made. what: words, vectors, dropped (of another model) or refused (by the model).",
            ["what"],
            registry=registry,
        )
        self.backfill_tenants_behind = Gauge(
            "nova_backfill_tenants_behind",
            "Fleet: tenants whose past has not been looked through for what cannot be searched.",
            registry=registry,
        )
        self.retention_deleted = Counter(
            "nova_retention_deleted_total",
            "Rows deleted by age: effects, deliveries, firings, work orders, audit events, threads, turns, changes.",
            ["what"],
            registry=registry,
        )

    def _declare_triggers(self, registry: CollectorRegistry) -> None:
        self.trigger_firings = Counter(
            "nova_trigger_firings_total",
            "Slots of triggers that something came of. outcome: fired or skipped; reason: why it was skipped.",
            ["outcome", "reason"],
            registry=registry,
        )
        self.trigger_tick_s = Histogram(
            "nova_trigger_tick_seconds",
            "Time of one look at what is due, with all that fired.",
            buckets=_FAST_S,
            registry=registry,
        )

    def _declare_deliveries(self, registry: CollectorRegistry) -> None:
        self.deliveries = Counter(
            "nova_deliveries_total",
            "Tries to hand something over outside. outcome: delivered, retried, failed or released.",
            ["channel", "outcome"],
            registry=registry,
        )
        self.delivery_duration_s = Histogram(
            "nova_delivery_duration_seconds",
            "Time of one try, with the answer.",
            ["channel"],
            buckets=_FAST_S,
            registry=registry,
        )

    def _declare_api(self, registry: CollectorRegistry) -> None:
        self.open_streams = Gauge("nova_sse_streams_open", "Open event streams.", registry=registry)
        self.http_requests = Counter(
            "nova_http_requests_total",
            "HTTP requests that ended. status 499: the client disconnected before.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.http_duration_s = Histogram(
            "nova_http_request_duration_seconds",
            "From the request's head to the end of the answer; of an event stream, to its first byte.",
            ["method", "route"],
            buckets=_FAST_S,
            registry=registry,
        )

    def _show_what_alerts_watch(self) -> None:
        """Show counters of failures at 0: `increase` of Prometheus does not see a series that begins at 1."""
        for outcome in ("requeued", "failed"):
            self.recoveries.labels(outcome)
        for outcome in ("ended", "lost"):
            self.suspects.labels(outcome)
        for kind in EFFECT_KINDS:
            self.effects.labels(kind, "failed")
        self.deliveries.labels("webhooks", "failed")

    def _model(self, name: str) -> str:
        """Return the label for a model: a provider may name another one with each response."""
        if name not in self._models:
            if len(self._models) >= _MOST_MODELS:
                return _OTHER_MODELS
            self._models.add(name)
        return name

    def record_usage(self, model: str | None, usage: TokenCounts, *, model_calls: int = 1) -> None:
        """Count what model calls used."""
        name = self._model(model or "unknown")
        self.model_calls.labels(name).inc(model_calls)
        for kind, amount in (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            if amount:
                self.tokens.labels(name, kind).inc(amount)
        if usage.cost_usd:
            self.cost_usd.labels(name).inc(usage.cost_usd)

    def record_model_retry(self, model: str, cause: str) -> None:
        """Count a model call that failed and is made again."""
        self.model_retries.labels(self._model(model), cause).inc()

    def record_cooldown(self, profile: str, reason: str) -> None:
        """Count a paused provider key."""
        self.profile_cooldowns.labels(profile, reason).inc()

    def record_fallback(self, model: str, fallback: str) -> None:
        """Count a turn that went on with another model."""
        self.model_fallbacks.labels(self._model(model), self._model(fallback)).inc()

    def set_breaker_open(self, model: str, *, is_open: bool) -> None:
        """Set whether a model's circuit breaker is open."""
        self.breaker_open.labels(self._model(model)).set(is_open)

    def observe_rate_limit_wait(self, model: str, waited_s: float) -> None:
        """Record how long a call waited for the rate limit."""
        self.rate_limit_wait_s.labels(self._model(model)).observe(waited_s)

    def set_provider_rests(self, rests: Mapping[tuple[str, str], int]) -> None:
        """Set how many keys and models rest, by provider and kind."""
        self.provider_rests.clear()
        for (provider, kind), number in rests.items():
            self.provider_rests.labels(provider, kind).set(number)

    def set_fleet(self, open_runs: Mapping[str, int], queues: Mapping[str, tuple[int, float | None]]) -> None:
        """Set the gauges of the whole fleet; call it before a scrape is answered.

        Args:
            open_runs: Runs that are not over, by status.
            queues: For each non-empty queue: the number of queued runs, and the age of the oldest in seconds.
        """
        for gauge in (self.runs_open, self.queue_depth, self.queue_oldest_age_s):
            gauge.clear()
        for status in OPEN_RUNS:
            self.runs_open.labels(status).set(open_runs.get(status, 0))
        for queue in RUN_QUEUES:
            self.queue_depth.labels(queue).set(0)
            self.queue_oldest_age_s.labels(queue).set(0)
        for queue, (queued, oldest_age_s) in queues.items():
            self.queue_depth.labels(queue).set(queued)
            self.queue_oldest_age_s.labels(queue).set(oldest_age_s or 0)

    def set_overdue(self, ages_s: Mapping[str, float]) -> None:
        """Set how long the oldest due work of each kind has been due, in seconds."""
        for what, age_s in ages_s.items():
            self.overdue_age_s.labels(what).set(age_s)

    def set_held(self, runs: Mapping[str, int]) -> None:
        """Set how many runs of the fleet are held, by the reason for which a model provider cannot be used."""
        for reason in words_of(OutageReason):
            self.runs_held_now.labels(reason).set(runs.get(reason, 0))

    def exposition(self) -> tuple[bytes, str]:
        """Return all metrics in Prometheus' text format, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class MetricsServer:
    """Serves a worker's metrics over HTTP, on a thread of its own.

    Loopback by default: the metrics show how much is spent on which model.
    """

    def __init__(self, metrics: Metrics, port: int, *, host: str = "127.0.0.1") -> None:
        """Listen.

        Args:
            metrics: What to serve.
            port: 0 picks a free one.
            host: The address to bind.

        Raises:
            OSError: The port is taken.
        """
        served: tuple[WSGIServer, Thread] = start_http_server(port, addr=host, registry=metrics.registry)
        self._server, self._thread = served
        self.host: str = host
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)
