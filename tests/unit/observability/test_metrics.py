"""Every metric is declared once, with its unit, and is exposed."""

import urllib.request

import pytest
from inline_snapshot import snapshot
from prometheus_client import CollectorRegistry

from nova_workers.base.observability.metrics import Metrics, MetricsServer
from nova_workers.contracts.usage import TokenUsage
from tests.requirements import proves


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def test_the_names_of_our_metrics(metrics: Metrics) -> None:
    ours = sorted(
        f"{family.name} {family.type}" for family in metrics.registry.collect() if family.name.startswith("nova_")
    )
    assert ours == snapshot(
        [
            "nova_backfill_tenants_behind gauge",
            "nova_backfilled counter",
            "nova_cost_usd counter",
            "nova_deliveries counter",
            "nova_delivery_duration_seconds histogram",
            "nova_doorbells counter",
            "nova_effect_duration_seconds histogram",
            "nova_effects counter",
            "nova_event_lag_seconds histogram",
            "nova_foreign_messages counter",
            "nova_http_request_duration_seconds histogram",
            "nova_http_requests counter",
            "nova_lease_losses counter",
            "nova_loop_lag_seconds histogram",
            "nova_model_breaker_open gauge",
            "nova_model_calls counter",
            "nova_model_fallbacks counter",
            "nova_model_profile_cooldowns counter",
            "nova_model_rate_limit_wait_seconds histogram",
            "nova_model_retries counter",
            "nova_overdue_age_seconds gauge",
            "nova_provider_rests gauge",
            "nova_queue_depth gauge",
            "nova_queue_oldest_age_seconds gauge",
            "nova_retention_deleted counter",
            "nova_run_accept_to_start_seconds histogram",
            "nova_run_claim_latency_seconds histogram",
            "nova_run_duration_seconds histogram",
            "nova_run_first_token_seconds histogram",
            "nova_run_holds counter",
            "nova_run_recoveries counter",
            "nova_runs_accepted counter",
            "nova_runs_claimed counter",
            "nova_runs_finished counter",
            "nova_runs_held gauge",
            "nova_runs_in_flight gauge",
            "nova_runs_open gauge",
            "nova_runs_suspended counter",
            "nova_server_serves gauge",
            "nova_sse_streams_open gauge",
            "nova_suspect_processes counter",
            "nova_tokens counter",
            "nova_tool_calls counter",
            "nova_trigger_firings counter",
            "nova_trigger_tick_seconds histogram",
            "nova_worker_slots gauge",
        ]
    )


def test_two_processes_in_one_interpreter_do_not_share_metrics(metrics: Metrics) -> None:
    other = Metrics(CollectorRegistry())
    metrics.runs_finished.labels("succeeded", "interactive").inc()
    labels = {"status": "succeeded", "queue": "interactive"}
    assert metrics.registry.get_sample_value("nova_runs_finished_total", labels) == 1
    assert other.registry.get_sample_value("nova_runs_finished_total", labels) is None


@proves("metrics.first-event")
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("nova_run_recoveries_total", {"outcome": "requeued"}),
        ("nova_run_recoveries_total", {"outcome": "failed"}),
        ("nova_suspect_processes_total", {"outcome": "lost"}),
        ("nova_effects_total", {"kind": "title", "outcome": "failed"}),
        ("nova_deliveries_total", {"channel": "webhooks", "outcome": "failed"}),
    ],
)
def test_a_counter_that_an_alert_watches_is_there_before_its_first_event(
    metrics: Metrics, name: str, labels: dict[str, str]
) -> None:
    assert metrics.registry.get_sample_value(name, labels) == 0


def test_usage_is_counted_by_kind_and_an_unknown_price_is_no_cost(metrics: Metrics) -> None:
    metrics.record_usage("claude-x", TokenUsage(input_tokens=10, output_tokens=5, cost_usd=0.25))
    metrics.record_usage("claude-x", TokenUsage(input_tokens=1, cost_usd=None))
    metrics.record_usage(None, TokenUsage(output_tokens=2))
    value = metrics.registry.get_sample_value
    assert value("nova_tokens_total", {"model": "claude-x", "kind": "input"}) == 11
    assert value("nova_tokens_total", {"model": "unknown", "kind": "output"}) == 2
    assert value("nova_cost_usd_total", {"model": "claude-x"}) == 0.25
    assert value("nova_model_calls_total", {"model": "claude-x"}) == 2


def test_the_fleets_gauges_fall_back_to_zero(metrics: Metrics) -> None:
    metrics.set_fleet({"queued": 3, "running": 1}, {"background": (3, 12.5)})
    value = metrics.registry.get_sample_value
    assert value("nova_runs_open", {"status": "queued"}) == 3
    assert value("nova_queue_oldest_age_seconds", {"queue": "background"}) == 12.5
    metrics.set_fleet({}, {})
    assert value("nova_runs_open", {"status": "queued"}) == 0
    assert value("nova_queue_depth", {"queue": "background"}) == 0
    assert value("nova_queue_oldest_age_seconds", {"queue": "background"}) == 0


@proves("security.loopback")
def test_a_worker_serves_its_metrics_on_loopback(metrics: Metrics) -> None:
    metrics.runs_in_flight.set(4)
    server = MetricsServer(metrics, 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as response:
            assert b"nova_runs_in_flight 4.0" in response.read()
    finally:
        server.close()


def test_the_labels_of_models_are_bounded(metrics: Metrics) -> None:
    for at in range(1_000):
        metrics.record_usage(f"made-up-{at}", TokenUsage(output_tokens=1))
    value = metrics.registry.get_sample_value
    assert value("nova_model_calls_total", {"model": "made-up-199"}) == 1
    assert value("nova_model_calls_total", {"model": "made-up-200"}) is None
    assert value("nova_model_calls_total", {"model": "other"}) == 800
