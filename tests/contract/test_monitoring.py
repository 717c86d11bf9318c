"""Dashboards, alert rules and runbooks: they name what exists, and each alert fires and is resolved."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shutil
import subprocess
from typing import Any

import pytest
import typer
import yaml
from prometheus_client import CollectorRegistry

from nova_workers.base.observability.metrics import Metrics
from nova_workers.cli.app import app as cli
from nova_workers.ledger.database import Database
from tests.support.data.documents import ROOT

_FOLDER = ROOT / "deploy" / "monitoring"
_DASHBOARDS = sorted((_FOLDER / "dashboards").glob("*.json"))
_DOCTOR = ROOT / "docs" / "runbooks" / "doctor.md"
_RUNBOOKS = sorted(page for page in _DOCTOR.parent.glob("*.md") if page.stem not in ("index", "doctor"))
_BOUNDED_LABELS = frozenset(
    {"cause", "channel", "fallback", "kind", "method", "model", "outcome", "profile", "provider", "queue", "reason"}
    | {"route", "server", "source", "status", "what"}
)
"""Words of the vocabulary, names in settings, and templates of routes. `model` is cut at 200 names."""
_SAMPLES = re.compile(r"_(?:total|bucket|count|sum)$")


def _rules() -> list[dict[str, Any]]:
    return yaml.safe_load((_FOLDER / "rules.yml").read_text("utf-8"))["groups"][0]["rules"]


def _targets() -> list[dict[str, Any]]:
    documents = [json.loads(path.read_text("utf-8")) for path in _DASHBOARDS]
    return [target for document in documents for panel in document["panels"] for target in panel["targets"]]


def test_the_dashboards_are_those_of_their_declaration() -> None:
    declared = runpy.run_path(str(ROOT / "deploy" / "environment" / "dashboards.py"))
    wanted = {f"{one.id}.json": declared["rendered"](one) for one in declared["DASHBOARDS"]}
    assert {path.name: path.read_text("utf-8") for path in _DASHBOARDS} == wanted


def _declared() -> list[tuple[str, str, tuple[str, ...], str]]:
    return runpy.run_path(str(ROOT / "deploy" / "environment" / "metrics_reference.py"))["declared"]()


def test_the_page_of_metrics_is_made_from_the_code() -> None:
    made = runpy.run_path(str(ROOT / "deploy" / "environment" / "metrics_reference.py"))
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8") == made["rendered"]()
    registry = CollectorRegistry()
    Metrics(registry)
    there = {metric.name for metric in registry.collect() if metric.name.startswith("nova_")}
    assert {name.removesuffix("_total") for name, *_ in _declared()} == there


def test_metrics_follow_the_conventions_of_prometheus() -> None:
    units = ("_seconds", "_bytes", "_usd_total", "_ratio")
    wrong: list[str] = []
    for name, kind, labels, help_ in _declared():
        of_time = re.search(r"_(ms|milliseconds|minutes|hours|kb|mb|percent)\b", name)
        if (kind == "counter") != name.endswith("_total") or of_time or not re.fullmatch(r"nova(_[a-z]+)+", name):
            wrong.append(f"{name}: a {kind} with a name of another kind")
        if kind == "histogram" and not name.endswith(units):
            wrong.append(f"{name}: a histogram without a base unit")
        if not help_.endswith("."):
            wrong.append(f"{name}: its help is no sentence")
        unbounded = set(labels) - _BOUNDED_LABELS
        if unbounded:
            wrong.append(f"{name}: {unbounded}: add a label only if the number of its values is bounded")
    assert wrong == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, of the package prometheus, is not installed")
def test_promtool_finds_no_fault_in_the_metrics() -> None:
    text, _ = Metrics(CollectorRegistry()).exposition()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_queries_and_rules_name_metrics_that_exist() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    there = {metric.name for metric in registry.collect()}
    texts = [*(target.get("expr", "") for target in _targets()), *(rule["expr"] for rule in _rules())]
    named = {_SAMPLES.sub("", name) for text in texts for name in re.findall(r"\bnova_[a-z_]+", text)}
    assert len(named) > 30
    assert named <= there


def test_the_dashboards_show_every_metric() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    there = {metric.name for metric in registry.collect() if metric.name.startswith("nova_")}
    shown = " ".join(target.get("expr", "") for target in _targets())
    assert {name for name in there if name not in shown} == set()


def test_each_alert_has_a_runbook_and_a_test_that_fires_and_resolves_it() -> None:
    alerts = {rule["alert"]: rule["annotations"]["runbook"] for rule in _rules()}
    by_alert = {re.findall(r"`(Nova\w+)`", page.read_text("utf-8"))[0]: page for page in _RUNBOOKS}
    assert {alert: str(page.relative_to(ROOT)) for alert, page in by_alert.items()} == alerts
    tests = yaml.safe_load((_FOLDER / "rules_test.yml").read_text("utf-8"))["tests"]
    seen = {test["name"]: [bool(one["exp_alerts"]) for one in test["alert_rule_test"]] for test in tests}
    assert seen == {alert: [True, False] for alert in alerts}


def _doctors_sections() -> list[str]:
    return re.split(r"^#(?=# )", _DOCTOR.read_text("utf-8"), flags=re.MULTILINE)[1:]


def test_each_bad_finding_of_the_doctor_has_a_runbook() -> None:
    headings = {section.splitlines()[0].removeprefix("# ") for section in _doctors_sections()}
    explained = {name.split()[0] for heading in headings for name in heading.split(", ")}
    explained |= {name for heading in headings for name in heading.split(", ")}
    found: set[str] = set()
    for path in (ROOT / "nova_workers" / "cli" / "operations").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Finding":
                name, state = call.args[0], call.args[1]
                is_good = isinstance(state, ast.Constant) and state.value == "ok"
                if isinstance(name, ast.Constant) and not is_good:
                    found.add(str(name.value))
                elif isinstance(name, ast.JoinedStr) and isinstance(name.values[0], ast.Constant) and not is_good:
                    found.add(str(name.values[0].value).split()[0].rstrip(","))
    assert len(found) > 30
    assert found - explained == set()


def test_runbooks_are_short_and_name_commands_that_exist() -> None:
    nova: Any = typer.main.get_command(cli)
    wrong: list[str] = []
    for page, text in [
        *((page, page.read_text("utf-8")) for page in _RUNBOOKS),
        *((_DOCTOR, section.rstrip()) for section in _doctors_sections()),
    ]:
        heading, blank, *lines = text.splitlines()
        if not heading.startswith("# ") or blank or [line[:4] for line in lines] != ["- **"] * 5:
            wrong.append(f"{page.name}: {heading}: a heading and five lines")
        for words in re.findall(r"`nova ([^`]+)`", text):
            name, command, rest = "nova", nova, words.split()
            context = command.context_class(command, info_name=name)
            try:
                while hasattr(command, "resolve_command"):
                    name, command, rest = command.resolve_command(context, rest)
                    context = command.context_class(command, info_name=name, parent=context)
                command.make_context(name, list(rest), parent=context)
            except (typer.Exit, Exception) as error:
                wrong.append(f"{page.name}: nova {words}: {error}")
    assert not wrong, "\n".join(wrong)


async def test_the_readers_role_runs_each_query_of_the_ledger_and_sees_no_content(database: Database) -> None:
    queries = [target["rawSql"] for target in _targets() if "rawSql" in target]
    assert len(queries) > 6
    statements = re.sub(r"^--.*$", "", (_FOLDER / "reader.sql").read_text("utf-8"), flags=re.MULTILINE).split(";")
    async with database.transaction() as connection:
        # The role is of the whole server, and goes with the transaction.
        for statement in filter(str.strip, statements):
            await connection.execute(statement)
        await connection.execute("SET LOCAL ROLE nova_reader")
        for query in queries:
            await connection.fetch(query)
        rights = await connection.fetch(
            "SELECT table_name, column_name FROM information_schema.column_privileges WHERE grantee = 'nova_reader'"
        )
        await connection.execute("RESET ROLE")
        await connection.execute("DROP OWNED BY nova_reader")
        await connection.execute("DROP ROLE nova_reader")
    readable = {f"{row['table_name']}.{row['column_name']}" for row in rights}
    assert {"runs.status", "usage.cost_usd"} <= readable
    assert not readable & {
        "runs.message",
        "runs.result_text",
        "agents.spec",
        "deliveries.payload",
        "runs.error_message",
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, of the package prometheus, is not installed")
def test_promtool_accepts_the_configuration_and_the_tests_of_the_rules() -> None:
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=_FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
