"""Writes the Grafana dashboards of deploy/monitoring/dashboards from the panels below.

`python deploy/environment/dashboards.py` writes them, as `make format` does; with `--check` it fails if one differs.
Panels of metrics ask Prometheus. Those by tenant and agent ask the ledger, since metrics have no ids.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

FOLDER: Final = Path(__file__).parents[1] / "monitoring" / "dashboards"

_COLUMNS: Final = 24
_HEIGHT: Final = 8

Unit = Literal["short", "s", "reqps", "ops", "percentunit", "currencyUSD", "bytes"]


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title: What it shows.
        unit: Grafana's name of the unit.
        queries: PromQL, each with the legend of its series.
        sql: A query of the ledger instead, whose rows are a table.
        width: Of the 24 columns.
        help: What a reader should know.
    """

    title: str
    unit: Unit
    queries: tuple[tuple[str, str], ...] = ()
    sql: str = ""
    width: int = 8
    help: str = ""


@dataclass(frozen=True)
class Dashboard:
    """One dashboard, whose file is named by its id."""

    id: str
    title: str
    panels: tuple[Panel, ...]


def _rate(
    metric: str, by: str, *, legend: str = "", where: str = "", over: str = "$__rate_interval"
) -> tuple[str, str]:
    selected = f"{{{where}}}" if where else ""
    return f"sum by ({by}) (rate({metric}{selected}[{over}]))", legend or f"{{{{{by.split(',', maxsplit=1)[0]}}}}}"


def _quantiles(metric: str, *, where: str = "") -> tuple[tuple[str, str], ...]:
    selected = f"{{{where}}}" if where else ""
    return tuple(
        (f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{selected}[$__rate_interval])))", f"p{q * 100:.0f}")
        for q in (0.5, 0.95, 0.99)
    )


_FLEET = Dashboard(
    "nova-fleet",
    "Nova Workers: fleet",
    (
        Panel("Runs accepted", "ops", (_rate("nova_runs_accepted_total", "source"),)),
        Panel("Runs ended", "ops", (_rate("nova_runs_finished_total", "status"),)),
        Panel("Open runs", "short", (("max by (status) (nova_runs_open)", "{{status}}"),)),
        Panel("Queued runs", "short", (("max by (queue) (nova_queue_depth)", "{{queue}}"),)),
        Panel("Age of the oldest queued run", "s", (("max by (queue) (nova_queue_oldest_age_seconds)", "{{queue}}"),)),
        Panel("Wait for a worker slot", "s", _quantiles("nova_run_accept_to_start_seconds")),
        Panel(
            "Used share of worker slots",
            "percentunit",
            (("sum(nova_runs_in_flight) / sum(nova_worker_slots)", "used"),),
        ),
        Panel(
            "Attempts begun", "ops", (_rate("nova_runs_claimed_total", "kind"),), help="Resumed: after a lost worker."
        ),
        Panel(
            "Runs that wait",
            "ops",
            (
                ("sum(rate(nova_runs_suspended_total[$__rate_interval]))", "for a person, a time or another run"),
                _rate("nova_run_holds_total", "reason", legend="for a provider: {{reason}}"),
            ),
        ),
        Panel(
            "Recovery",
            "ops",
            (
                _rate("nova_run_recoveries_total", "outcome", legend="{{outcome}} after a lost worker"),
                ("sum(rate(nova_lease_losses_total[$__rate_interval]))", "stopped without their lease"),
                _rate("nova_suspect_processes_total", "outcome", legend="suspect: {{outcome}}"),
            ),
        ),
        Panel(
            "Doorbells", "ops", (_rate("nova_doorbells_total", "outcome"),), help="Lost ones are rung again in 30 s."
        ),
        Panel(
            "Lag of event loops, p99",
            "s",
            (
                (
                    "histogram_quantile(0.99, sum by (le, instance)"
                    " (rate(nova_loop_lag_seconds_bucket[$__rate_interval])))",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Longest queued, by tenant",
            "s",
            sql="SELECT t.name AS tenant, r.queue, count(*) AS queued,"
            " extract(epoch FROM now() - min(r.queued_at))::float AS oldest_s"
            " FROM runs r JOIN tenants t ON t.id = r.tenant_id WHERE r.status = 'queued'"
            " GROUP BY t.id, t.name, r.queue ORDER BY oldest_s DESC LIMIT 20",
            width=24,
        ),
    ),
)

_RUNS = Dashboard(
    "nova-runs",
    "Nova Workers: runs",
    (
        Panel("Time to the first token", "s", _quantiles("nova_run_first_token_seconds")),
        Panel(
            "Lag of live events",
            "s",
            _quantiles("nova_event_lag_seconds"),
            help="From an event until Redis has it: what readers of a stream wait for beside the model.",
        ),
        Panel("Duration of runs", "s", _quantiles("nova_run_duration_seconds", where='status="succeeded"')),
        Panel("Wait in the queue", "s", _quantiles("nova_run_claim_latency_seconds")),
        Panel(
            "Share of failed runs",
            "percentunit",
            (
                (
                    'sum(rate(nova_runs_finished_total{status="failed"}[$__rate_interval]))'
                    " / sum(rate(nova_runs_finished_total[$__rate_interval]))",
                    "failed",
                ),
            ),
        ),
        Panel(
            "Attempts a run",
            "short",
            (
                (
                    "sum(rate(nova_runs_claimed_total[$__rate_interval]))"
                    " / sum(rate(nova_runs_finished_total[$__rate_interval]))",
                    "attempts",
                ),
            ),
            help="Runs that wait, or whose worker was lost, have several.",
        ),
        Panel("Tool calls", "ops", (_rate("nova_tool_calls_total", "status"),)),
        Panel(
            "Retried model calls",
            "ops",
            (_rate("nova_model_retries_total", "model, cause", legend="{{model}}: {{cause}}"),),
        ),
        Panel(
            "Turns that went on with another model",
            "ops",
            (_rate("nova_model_fallbacks_total", "model, fallback", legend="{{model}} → {{fallback}}"),),
        ),
        Panel("Runs held for their provider", "short", (("max by (reason) (nova_runs_held)", "{{reason}}"),)),
        Panel(
            "Providers that rest",
            "short",
            (
                ("max by (provider, kind) (nova_provider_rests)", "{{provider}} ({{kind}})"),
                ("max by (model) (nova_model_breaker_open)", "{{model}} is not called"),
                _rate("nova_model_profile_cooldowns_total", "reason", legend="keys paused a second: {{reason}}"),
            ),
        ),
        Panel(
            "Wait for a model's rate limit, p95",
            "s",
            (
                (
                    "histogram_quantile(0.95, sum by (le, model)"
                    " (rate(nova_model_rate_limit_wait_seconds_bucket[$__rate_interval])))",
                    "{{model}}",
                ),
            ),
        ),
        Panel(
            "Failures of the last day, by kind",
            "short",
            sql="SELECT error_kind, agent_id, count(*) AS failed, max(finished_at) AS latest FROM runs"
            " WHERE status = 'failed' AND finished_at > now() - interval '1 day'"
            " GROUP BY error_kind, agent_id ORDER BY failed DESC LIMIT 50",
        ),
    ),
)

_COST = Dashboard(
    "nova-cost",
    "Nova Workers: cost",
    (
        Panel(
            "US dollars an hour, by model",
            "currencyUSD",
            (("sum by (model) (rate(nova_cost_usd_total[$__rate_interval])) * 3600", "{{model}}"),),
        ),
        Panel("Tokens", "ops", (_rate("nova_tokens_total", "kind"),)),
        Panel(
            "Share of input from the prompt cache",
            "percentunit",
            (
                (
                    'sum by (model) (rate(nova_tokens_total{kind="cache_read"}[$__rate_interval])) / sum by (model)'
                    ' (rate(nova_tokens_total{kind=~"input|cache_read|cache_write"}[$__rate_interval]))',
                    "{{model}}",
                ),
            ),
        ),
        Panel("Model calls", "ops", (_rate("nova_model_calls_total", "model"),)),
        Panel(
            "Cost of the last day, by tenant",
            "currencyUSD",
            sql="SELECT t.name AS tenant, sum(u.cost_usd)::float AS usd, sum(u.input_tokens) AS input_tokens,"
            " sum(u.output_tokens) AS output_tokens FROM usage u JOIN tenants t ON t.id = u.tenant_id"
            " WHERE u.created_at > now() - interval '1 day'"
            " GROUP BY t.id, t.name ORDER BY usd DESC NULLS LAST LIMIT 50",
        ),
        Panel(
            "Cost of the last day, by agent",
            "currencyUSD",
            sql="SELECT t.name AS tenant, u.agent_id AS agent, sum(u.cost_usd)::float AS usd, sum(u.model_calls) calls"
            " FROM usage u JOIN tenants t ON t.id = u.tenant_id WHERE u.created_at > now() - interval '1 day'"
            " GROUP BY t.id, t.name, u.agent_id ORDER BY usd DESC NULLS LAST LIMIT 50",
        ),
        Panel(
            "Budgets, and what is left today",
            "currencyUSD",
            sql="SELECT t.name AS tenant, '' AS agent, t.max_cost_usd_per_day::float AS budget,"
            " (t.max_cost_usd_per_day - coalesce(sum(u.cost_usd), 0))::float AS rest FROM tenants t"
            " LEFT JOIN usage u ON u.tenant_id = t.id"
            " AND u.created_at >= date_trunc('day', now(), t.timezone)"
            " WHERE t.max_cost_usd_per_day IS NOT NULL GROUP BY t.id"
            " UNION ALL SELECT t.name, a.id, a.max_cost_usd_per_day::float,"
            " (a.max_cost_usd_per_day - coalesce(sum(u.cost_usd), 0))::float FROM agents a"
            " JOIN tenants t ON t.id = a.tenant_id LEFT JOIN usage u ON u.tenant_id = a.tenant_id AND u.agent_id = a.id"
            " AND u.created_at >= date_trunc('day', now(), t.timezone)"
            " WHERE a.max_cost_usd_per_day IS NOT NULL AND a.deleted_at IS NULL"
            " GROUP BY t.id, a.tenant_id, a.id ORDER BY rest LIMIT 50",
            width=24,
        ),
    ),
)

_INFRASTRUCTURE = Dashboard(
    "nova-infrastructure",
    "Nova Workers: infrastructure",
    (
        Panel("Requests", "reqps", (_rate("nova_http_requests_total", "status"),)),
        Panel(
            "Latency of requests",
            "s",
            _quantiles("nova_http_request_duration_seconds", where='route!~".*(wait|stream|events)"'),
        ),
        Panel("Open event streams", "short", (("sum(nova_sse_streams_open)", "streams"),)),
        Panel(
            "Servers that take writes",
            "short",
            (("min by (server) (nova_server_serves)", "{{server}}"),),
            help="0 while a worker cannot write to it.",
        ),
        Panel("Effects", "ops", (_rate("nova_effects_total", "kind, outcome", legend="{{kind}}: {{outcome}}"),)),
        Panel("Time of effects", "s", _quantiles("nova_effect_duration_seconds")),
        Panel(
            "Deliveries",
            "ops",
            (_rate("nova_deliveries_total", "channel, outcome", legend="{{channel}}: {{outcome}}"),),
        ),
        Panel("Time of deliveries", "s", _quantiles("nova_delivery_duration_seconds")),
        Panel("Firings of triggers", "ops", (_rate("nova_trigger_firings_total", "outcome"),)),
        Panel("Time of a tick", "s", _quantiles("nova_trigger_tick_seconds")),
        Panel(
            "Memory of processes", "bytes", (('process_resident_memory_bytes{job=~"nova-.*"}', "{{job}} {{instance}}"),)
        ),
        Panel(
            "CPU of processes",
            "short",
            (('rate(process_cpu_seconds_total{job=~"nova-.*"}[$__rate_interval])', "{{job}} {{instance}}"),),
        ),
        Panel(
            "Upkeep",
            "ops",
            (
                _rate("nova_retention_deleted_total", "what", legend="deleted: {{what}}"),
                _rate("nova_backfilled_total", "what", legend="backfilled: {{what}}"),
                ("max(nova_backfill_tenants_behind)", "tenants whose past is not searched through"),
            ),
        ),
        Panel(
            "Dropped messages",
            "ops",
            (_rate("nova_foreign_messages_total", "source, reason", legend="{{source}}: {{reason}}"),),
        ),
        Panel(
            "Due and not done, since",
            "s",
            (("max by (what) (nova_overdue_age_seconds)", "{{what}}"),),
            help="The oldest effect, delivery, firing of a trigger and end of a wait.",
        ),
        Panel(
            "What is late",
            "s",
            sql="SELECT 'effects' AS what, count(*) AS late, extract(epoch FROM now() - min(due_at))::float AS oldest_s"
            " FROM effects WHERE status = 'pending' AND due_at < now()"
            " UNION ALL SELECT 'deliveries', count(*), extract(epoch FROM now() - min(due_at))::float"
            " FROM deliveries WHERE status = 'pending' AND target <> 'user' AND due_at < now()"
            " UNION ALL SELECT 'triggers', count(*), extract(epoch FROM now() - min(next_fire_at))::float"
            " FROM triggers WHERE enabled AND deleted_at IS NULL AND next_fire_at < now()",
        ),
        Panel(
            "Sessions of Postgres",
            "short",
            sql="SELECT coalesce(application_name, '') AS program, state, count(*) AS sessions,"
            " extract(epoch FROM max(now() - xact_start))::float AS longest_transaction_s FROM pg_stat_activity"
            " WHERE datname = current_database() GROUP BY 1, 2 ORDER BY sessions DESC",
        ),
        Panel(
            "Largest tables",
            "bytes",
            sql="SELECT relname, pg_total_relation_size(relid) AS bytes, n_live_tup AS live, n_dead_tup AS dead"
            " FROM pg_stat_user_tables ORDER BY bytes DESC LIMIT 20",
        ),
    ),
)

DASHBOARDS: Final = (_FLEET, _RUNS, _COST, _INFRASTRUCTURE)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """Return the JSON model of a dashboard, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(dashboard.panels, 1):
        if x + panel.width > _COLUMNS:
            x, y = 0, y + _HEIGHT
        panels.append(_panel(panel, number) | {"gridPos": {"h": _HEIGHT, "w": panel.width, "x": x, "y": y}})
        x += panel.width
    return {
        "uid": dashboard.id,
        "title": dashboard.title,
        "tags": ["nova-workers"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [_source("prometheus", "Prometheus", "prometheus"), _source("ledger", "Ledger", _POSTGRES)]
        },
        "panels": panels,
    }


_POSTGRES: Final = "grafana-postgresql-datasource"


def _source(name: str, label: str, kind: str) -> dict[str, Any]:
    return {"type": "datasource", "name": name, "label": label, "query": kind}


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    kind, name = (_POSTGRES, "ledger") if panel.sql else ("prometheus", "prometheus")
    source = {"type": kind, "uid": f"${{{name}}}"}
    if panel.sql:
        targets = [{"refId": "A", "datasource": source, "format": "table", "rawQuery": True, "rawSql": panel.sql}]
    else:
        targets = [
            {"refId": chr(ord("A") + at), "datasource": source, "expr": expr, "legendFormat": legend}
            for at, (expr, legend) in enumerate(panel.queries)
        ]
    return {
        "id": number,
        "type": "table" if panel.sql else "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": source,
        "targets": targets,
        "fieldConfig": {"defaults": {} if panel.sql else {"unit": panel.unit}, "overrides": []},
    }


def rendered(dashboard: Dashboard) -> str:
    """Return the text of a dashboard's file."""
    return json.dumps(document(dashboard), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the files, or with ``--check`` name those that differ."""
    differing: list[str] = []
    for dashboard in DASHBOARDS:
        path = FOLDER / f"{dashboard.id}.json"
        text = rendered(dashboard)
        if "--check" not in sys.argv:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            differing.append(path.name)
    if differing:
        sys.stderr.write(f"{', '.join(differing)}: make format writes these from deploy/environment/dashboards.py\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
