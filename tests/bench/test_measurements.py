"""Every measurement runs, on tiny sizes, with plausible figures. `make bench` measures the real ones."""

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from nova_workers.devstack.commands import WORKER_APP
from tests.bench.bare import measure_bare_celery
from tests.bench.figures import Breakdown, Figure, Result, bar, percentile, spread
from tests.bench.installed import Site
from tests.bench.machine import Machine
from tests.bench.report import Report
from tests.bench.rows import ROWS
from tests.bench.rows.doors import WITH_DOORS
from tests.bench.scale import measure_scale
from tests.bench.servers import Servers
from tests.bench.sizes import Sizes
from tests.bench.stage import DEFAULT_SLOTS, Bench, Stage

_OWN_FLEET = ("claims", "triggers")
"""A row without a fleet, and one with another."""
_OF_NOVA_UP = ("concurrent-1000", "doors", "first", "floor", "start")
"""Rows that start the fleet as users do."""
_LONG = (
    *("backfill", "cached", "changes", "code", "init", "innocents", "notice", "orders", "plan", "recovery", "rename"),
    *("search", "tokens", "tools", "trees"),
)
"""The other rows with another fleet."""
_IN_OWN_TEST = ("scaling", *_OF_NOVA_UP, *_LONG)
"""Rows with more processes than fit into the time of a test beside the others."""


@dataclass(frozen=True, slots=True)
class _SharingBench(Bench):
    """Measures on one fleet, or one `nova up`, where the bench itself starts some for each row."""

    shared: Stage | None = None
    shared_site: Site | None = None

    @asynccontextmanager
    async def stage(
        self, *, slots: int = DEFAULT_SLOTS, worker_app: str = WORKER_APP, env: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Stage]:
        assert self.shared is not None
        assert (worker_app, env) == (WORKER_APP, None), "this row wants a fleet of its own"
        yield self.shared

    def up(self, home: Path) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def site(self, given: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Site]:
        assert self.shared_site is not None
        return nullcontext(self.shared_site)


@pytest.mark.begins_first
@pytest.mark.fleet
@pytest.mark.timeout(900)
async def test_every_measurement_runs_and_gives_figures_that_can_be_true(
    postgres_url_admin: str, redis_url: str
) -> None:
    servers, sizes = await _servers(postgres_url_admin, redis_url), Sizes.tiny()
    bench = Bench(servers, sizes, await measure_bare_celery(servers, sizes, preloaded=True), preloaded=True)
    results: dict[str, Result] = {}
    async with bench.stage() as stage:
        sharing = replace(_sharing(bench), shared=stage)
        # The memory row leaves turns behind that never end.
        for row in sorted(ROWS.keys() - {*_OWN_FLEET, *_IN_OWN_TEST}, key=lambda row: (row == "memory", row)):
            results[row] = await ROWS[row](sharing)
    for row in _OWN_FLEET:
        results[row] = await ROWS[row](bench)

    for row, result in results.items():
        _check(row, result)
    for row in ("accept", "wait", "first-event"):
        p50, p95, p99 = (figure.value for figure in results[row].figures)
        assert 0 < p50 <= p95 <= p99 < 60_000
    assert results["concurrent-200"].figures[0].value > sizes.turn_s
    cpu_ms = results["turns"].details["cpu_ms_per_run"]
    assert {"api", "worker", "postgres", "valkey", "load generator"} <= set(cpu_ms)


@pytest.mark.long
@pytest.mark.fleet
@pytest.mark.timeout(900)
@pytest.mark.parametrize("row", _OF_NOVA_UP)
async def test_nova_up_is_measured(postgres_url_admin: str, redis_url: str, row: str) -> None:
    servers, sizes = await _servers(postgres_url_admin, redis_url), Sizes.tiny()
    bench = Bench(servers, sizes, await measure_bare_celery(servers, sizes, preloaded=True), preloaded=True)
    async with bench.stage() as stage, bench.site(WITH_DOORS) as site:
        _check(row, await ROWS[row](replace(_sharing(bench), shared=stage, shared_site=site)))


@pytest.mark.long
@pytest.mark.fleet
@pytest.mark.parametrize("row", _LONG)
async def test_what_takes_longer_is_measured(postgres_url_admin: str, redis_url: str, row: str) -> None:
    result = await ROWS[row](Bench(await _servers(postgres_url_admin, redis_url), Sizes.tiny(), preloaded=True))
    _check(row, result)
    assert [figure.value for figure in result.figures if figure.label == "run twice"] == [0] * (row == "recovery")


# The measurement of `turns`, with more workers and more API processes.
@pytest.mark.long
@pytest.mark.fleet
@pytest.mark.timeout(180)
async def test_scaling_out_is_measured_with_the_connections_of_each_kind_of_process(
    postgres_url_admin: str, redis_url: str
) -> None:
    sizes = Sizes.tiny()
    result = await ROWS["scaling"](Bench(await _servers(postgres_url_admin, redis_url), sizes, preloaded=True))

    _check("scaling", result)
    workers, apis = result.details["workers"], result.details["apis"]
    assert tuple(step["workers"] for step in workers) == sizes.scaling_workers
    assert tuple(step["apis"] for step in apis) == sizes.scaling_apis
    for step in (*workers, *apis):
        connections = step["window"]["connections"]
        assert min(connections["nova-api"]) >= step["apis"]
        assert min(connections["nova-worker"]) >= step["workers"]
        assert step["window"]["turns"] > 0
    assert result.breakdown is not None
    assert len(result.breakdown.lines) == len(workers) + len(apis)


@pytest.mark.long
@pytest.mark.fleet
async def test_what_each_number_of_workers_costs_is_measured(postgres_url_admin: str, redis_url: str) -> None:
    servers = await _servers(postgres_url_admin, redis_url)

    result = await measure_scale(servers, (1, 2), turns_per_s=2)

    assert result.breakdown is not None
    assert [line[0] for line in result.breakdown.lines] == ["1", "2"]
    assert all(len(line) == len(result.breakdown.columns) for line in result.breakdown.lines)


def _sharing(bench: Bench) -> _SharingBench:
    return _SharingBench(bench.servers, bench.sizes, bench.bare, preloaded=bench.preloaded)


async def _servers(admin_url: str, redis_url: str) -> Servers:
    bare_url = f"{redis_url.partition('?')[0]}?db=1"
    return await Servers.at(admin_url=admin_url, redis_url=redis_url, bare_redis_url=bare_url)


def _check(row: str, result: Result) -> None:
    assert result.row == row
    assert all(math.isfinite(figure.value) for figure in result.figures)
    assert any(figure.bound is not None for figure in result.figures)


def test_a_row_misses_when_any_of_its_bounds_is_missed() -> None:
    kept = Figure("p50", 9.0, "ms", bound=10)
    missed = Figure("p99", 51.0, "ms", bound=50)
    rate = Figure("", 130.0, "/s", bound=130, at_least=True)

    assert Result("r", "what", (kept, rate)).met is True
    assert Result("r", "what", (kept, missed)).met is False
    assert replace(rate, value=129.9).met is False
    assert Result("r", "what", (Figure("", 1.0, "s"),)).met is None


def test_percentiles_are_measured_values_and_never_between_two() -> None:
    hundred = [float(value) for value in range(1, 101)]

    assert [percentile(hundred, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([3.0], 0.99) == 3.0
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_the_report_says_the_same_in_the_table_and_in_the_file() -> None:
    figures = spread([0.004, 0.006], bounds_ms={"p50": 5, "p99": 5}, bare_s=[0.002])
    steps = Breakdown(("processes", "of linear"), (("2", bar(0.5)),))
    result = Result("wait", "POST | wait", figures, notes=("Idle.",), breakdown=steps)
    report = Report(Machine.this(), datetime.now(UTC), 1.0, "tiny", (result,))

    table = report.to_markdown()
    assert "| POST \\| wait [1] | p50 ≤ 5 ms · p99 ≤ 5 ms | p50 4 ms · p95 6 ms · p99 6 ms | ✗ | p50 2" in table
    assert "[1] Idle." in table
    assert "| processes | of linear |\n| --- | --- |\n| 2 | ██████████ |" in table
    row = orjson.loads(report.to_json())["rows"][0]
    assert (row["met"], row["figures"][0]["value"]) == (False, 4.0)
    assert report.missed == ("wait",)
