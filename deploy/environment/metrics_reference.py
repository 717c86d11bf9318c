"""Writes docs/reference/metrics.md from the metrics that the code declares.

`python deploy/environment/metrics_reference.py` writes it, as `make format` does; with `--check` it fails if it
differs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics import MetricWrapperBase

from nova_workers.base.observability.metrics import Metrics

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

_HEAD: Final = """# Metrics

Made from the code by `make format`. [Monitoring](../monitoring.md) shows how to scrape them, with dashboards and rules.

Each process has its own: sum counters and histograms over instances. Gauges that begin with *Fleet* are of the whole
fleet, and set by each API process when it is scraped: take their maximum. Labels are bounded: none is an id of a
tenant, an agent, a thread or a run. Each process also has the Prometheus client's, `process_*` and `python_gc_*`.

| metric | kind | labels | |
| --- | --- | --- | --- |
"""


def declared() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Return name, kind, labels and help of each metric, sorted by name."""
    registry = CollectorRegistry()
    return sorted(
        (_name(metric), metric.type, _labels(collector), metric.documentation)
        for collector in vars(Metrics(registry)).values()
        if isinstance(collector, MetricWrapperBase)
        for metric in collector.collect()
    )


def rendered() -> str:
    """Return the text of the page."""
    rows = (
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {help_.replace('|', chr(92) + '|')} |"
        for name, kind, labels, help_ in declared()
    )
    return _HEAD + "\n".join(rows) + "\n"


def _name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _labels(collector: MetricWrapperBase) -> tuple[str, ...]:
    # The names are no part of what a metric without samples shows.
    return tuple(getattr(collector, "_labelnames", ()))


def main() -> int:
    """Write the page, or with ``--check`` fail if it differs."""
    if "--check" not in sys.argv:
        PAGE.write_text(rendered(), "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != rendered():
        sys.stderr.write(f"{PAGE.name}: make format writes it from nova_workers/base/observability/metrics.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
