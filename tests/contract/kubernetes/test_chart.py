"""The chart renders objects that every release of Kubernetes takes, and refuses values that make no fleet."""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from api.doors.loading import DOORS
from nova_workers.base.config.secret_variables import secret_settings
from nova_workers.base.config.settings import CLIENT_VARIABLES
from nova_workers.ledger.database import Database
from tests.support.data.charts import (
    CHART,
    POD_KINDS,
    RELEASE,
    VALUE_SETS,
    Document,
    default_values,
    faults,
    helm,
    needs_helm,
    refusal,
    rendered,
    workloads,
)
from tests.support.data.documents import ROOT, blocks
from tests.support.data.idle_api import idle_api

_VERSIONS = ("1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
_OPERATORS = {
    "external-secrets.io/v1",
    "gateway.networking.k8s.io/v1",
    "keda.sh/v1alpha1",
    "monitoring.coreos.com/v1",
}
"""APIs that no schema of Kubernetes has."""
_MONITORING = ROOT / "deploy" / "monitoring"


def _schema() -> dict[str, Any]:
    return json.loads((CHART / "values.schema.json").read_text("utf-8"))


def _values(name: str) -> Path:
    return next(path for path in VALUE_SETS if path.stem == name)


def _by_kind(name: str, kind: str) -> dict[str, Document]:
    return {one["metadata"]["name"]: one for one in rendered(_values(name)) if one["kind"] == kind}


def _settings(values: Path) -> dict[str, str]:
    (found,) = (one["data"] for one in rendered(values) if one["metadata"]["name"] == "nova-settings")
    return found


# Values


def test_the_schema_has_each_value_and_no_other() -> None:
    definitions = _schema()["$defs"]

    def compare(schema: dict[str, Any], values: dict[str, Any], path: str) -> None:
        schema = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        # A map that is empty by default, such as `workerPools`, or an object of Kubernetes, such as `resources`.
        if not values or "properties" not in schema or "required" in schema:
            return
        assert schema["additionalProperties"] is False, path
        assert schema["properties"].keys() - {"global"} == values.keys(), path
        for name, value in values.items():
            if isinstance(value, dict) and name in schema["properties"]:
                compare(schema["properties"][name], value, f"{path}.{name}")

    compare(_schema(), default_values(), "values")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("worker.replica", 3),
        ("worker.replicas", "3"),
        ("worker.queues", ["fast"]),
        ("worker.seccompProfile", {"type": "Unconfined"}),
        ("worker.resources", {"requests": {"cpu": "1", "memory": "1Gi"}}),
        ("worker.autoscaling.kind", "vpa"),
        ("workerPools", {"Upper": {}}),
        ("workerPools", {"shells": {"trust": "unrestricted"}}),
        ("trustPools", {"root": "shells"}),
        ("secrets.source", "values"),
        ("image.digest", "latest"),
        ("api.doors", ["grpc"]),
        ("api.publicUrl", "nova.example.org"),
        ("beat.replicas", 0),
        ("ingress.api.host", "https://nova.example.org"),
        ("channels", {"desk": {"channel": "desk", "secret": "desk"}}),
        ("settings", {"NOVA_WORKER__CONCURRENCY": 64}),
        ("settings", {"OPENAI_API_KEY": "a-key"}),
    ],
)
def test_the_schema_refuses_wrong_values(path: str, value: object) -> None:
    values = default_values()
    validator = jsonschema_rs.validator_for(_schema())
    assert validator.is_valid(values)
    *above, last = path.split(".")
    place = values
    for name in above:
        place = place[name]
    place[last] = value
    assert not validator.is_valid(values)


@needs_helm
def test_no_setting_that_the_chart_makes_can_be_a_value() -> None:
    validator = jsonschema_rs.validator_for(_schema())
    shared = {name: data for values in VALUE_SETS for name, data in _settings(values).items()}
    own = {
        entry["name"]
        for values in VALUE_SETS
        for pod in workloads(rendered(values)).values()
        for entry in pod["containers"][0].get("env", ())
    }
    made = {name for name in {*shared, *own} if name.startswith("NOVA_")} - CLIENT_VARIABLES
    # Those of the sets `placement`, `pools` and `sign-on`, and the two that are a choice.
    free = {name for name in made if validator.is_valid({"settings": {name: "text"}})}
    assert free == {
        "NOVA_ENVIRONMENT",
        "NOVA_MODEL__MAX_TOKENS",
        "NOVA_OIDC__CLIENT_ID",
        "NOVA_OIDC__GRANTS",
        "NOVA_OIDC__ISSUER",
        "NOVA_TELEMETRY__LOG_FORMAT",
        "NOVA_TELEMETRY__LOG_LEVEL",
        "NOVA_TIMEZONE",
        "NOVA_TOOLS__SHELL_SANDBOX",
    }


def test_no_setting_that_holds_a_secret_can_be_a_value() -> None:
    validator = jsonschema_rs.validator_for(_schema())
    names = [*secret_settings(), "NOVA_OPENAI__PROVIDERS__LOCAL__API_KEY", "NOVA_TELEGRAM__BOTS__DESK__TOKEN"]
    assert [name for name in names if validator.is_valid({"settings": {name: "text"}})] == []
    assert validator.is_valid({"settings": {"NOVA_TIMEZONE": "Europe/Oslo"}})


def test_the_values_on_the_page_are_values_of_the_chart() -> None:
    validator = jsonschema_rs.validator_for(_schema())
    shown = [yaml.safe_load(block.text) for block in blocks("yaml", ROOT / "docs" / "kubernetes.md")]
    assert len(shown) > 5
    assert [error.message for values in shown for error in validator.iter_errors(values)] == []


@needs_helm
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("worker.replica=3", "additional properties 'replica' not allowed"),
        ("worker.queues={interactive}", "no workers without a pool serve the queue background"),
        ("worker.pool=shells", "no workers without a pool serve the queue interactive"),
        ("worker.drain.graceSeconds=60", "drain.graceSeconds is at most drain.deadlineSeconds"),
        ("worker.autoscaling.minReplicas=60", "autoscaling.minReplicas is at most autoscaling.maxReplicas"),
        ("secrets.source=external", "secrets.external.store is the name of a store"),
        ("workerPools.slow.queues={effects},workerPools.slow.autoscaling.kind=keda", "scale these workers by hpa"),
    ],
)
def test_helm_refuses_values_that_make_no_fleet(value: str, reason: str) -> None:
    assert reason in refusal("--set", value)


@needs_helm
def test_the_packaged_chart_is_the_chart_and_two_builds_of_it_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "deploy" / "environment"), *sys.path])
    package = runpy.run_path(str(ROOT / "deploy" / "environment" / "chart.py"))["package"]
    packed = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        packed.append(package(folder, time_s=1_700_000_000))
    assert packed[0].name.startswith("nova-workers-chart-")
    assert packed[0].read_bytes() == packed[1].read_bytes()
    shown = [helm("template", RELEASE, str(place), "-f", str(_values("ingress"))) for place in (CHART, packed[0])]
    assert [done.returncode for done in shown] == [0, 0], shown[1].stderr
    assert shown[0].stdout == shown[1].stdout


@needs_helm
def test_a_pool_replaces_values_also_by_nothing() -> None:
    deployments = _by_kind("pools", "Deployment")
    (shells,) = deployments["nova-worker-shells"]["spec"]["template"]["spec"]["containers"]
    names = {entry["name"] for entry in shells["env"]}
    # Its list of queues is empty, where that of the common workers is not.
    assert "NOVA_WORKER__QUEUES" not in names
    assert "NOVA_WORKER__POOL" in names
    assert "replicas" not in _by_kind("hpa", "Deployment")["nova-worker"]["spec"]
    assert _by_kind("hpa", "Deployment")["nova-worker-system"]["spec"]["replicas"] == 2


# What is rendered


@needs_helm
def test_lint_finds_nothing() -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


def test_the_chart_is_for_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["appVersion"] == project["version"]


def test_there_are_twelve_sets_of_values() -> None:
    assert len(VALUE_SETS) >= 12


@needs_helm
@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_every_release_of_kubernetes_takes_the_objects(values: Path) -> None:
    documents = rendered(values)
    assert [fault for version in _VERSIONS for one in documents for fault in faults(one, version)] == []
    unknown = [one for one in documents if "/" in one["apiVersion"] and faults({**one, "typo": 1}, "1.34") == []]
    assert {one["apiVersion"] for one in unknown} <= _OPERATORS


@needs_helm
@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_two_releases_share_no_object(values: Path) -> None:
    named = [(one["kind"], one["metadata"]["name"]) for one in rendered(values)]
    assert len(named) == len(set(named))
    for one in rendered(values):
        assert one["metadata"]["name"].split("-")[0] == RELEASE or one["kind"] in {"Secret", "ExternalSecret"}
        assert one["metadata"]["labels"]["app.kubernetes.io/instance"] == RELEASE


def _finds(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", ())
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(one["key"]) in one["values"] for one in expressions
    )


@needs_helm
@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_selectors_find_the_pods_that_they_are_for(values: Path) -> None:
    documents = rendered(values)
    pods = {one["metadata"]["name"]: one for one in documents if one["kind"] in POD_KINDS}
    labels = {name: one["spec"]["template"]["metadata"]["labels"] for name, one in pods.items()}
    for one in documents:
        kind, spec = one["kind"], one.get("spec", {})
        if kind in {"Deployment", "StatefulSet", "PodDisruptionBudget"}:
            assert [name for name in labels if _finds(spec["selector"], labels[name])] == [one["metadata"]["name"]]
        elif kind == "Service":
            (found,) = (name for name in labels if spec["selector"].items() <= labels[name].items())
            (container,) = pods[found]["spec"]["template"]["spec"]["containers"]
            assert {port["targetPort"] for port in spec.get("ports", ())} <= {
                port["name"] for port in container["ports"]
            }
        elif kind == "NetworkPolicy":
            assert any(_finds(spec["podSelector"], each) for each in labels.values())
        elif kind in {"ScaledObject", "HorizontalPodAutoscaler"}:
            assert "replicas" not in pods[spec["scaleTargetRef"]["name"]]["spec"]


@needs_helm
def test_a_monitor_scrapes_all_workers_and_the_api_under_the_names_of_the_rules() -> None:
    (monitor,) = _by_kind("monitoring", "PodMonitor").values()
    labels = {
        name: one["spec"]["template"]["metadata"]["labels"]
        for name, one in _by_kind("monitoring", "Deployment").items()
    }
    found = {name for name in labels if _finds(monitor["spec"]["selector"], labels[name])}
    assert found == {"nova-worker", "nova-worker-background"}
    (service,) = _by_kind("monitoring", "ServiceMonitor").values()
    services = _by_kind("monitoring", "Service")
    assert [name for name in services if _finds(service["spec"]["selector"], services[name]["metadata"]["labels"])] == [
        "nova-api"
    ]
    jobs = {
        each["relabelings"][0]["replacement"]
        for each in (*monitor["spec"]["podMetricsEndpoints"], *service["spec"]["endpoints"])
    }
    assert jobs == set(re.findall(r'job="([\w-]+)"', (_MONITORING / "rules.yml").read_text("utf-8")))


@needs_helm
def test_rules_and_dashboards_are_those_of_the_folder_of_monitoring() -> None:
    (rule,) = _by_kind("monitoring", "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load((_MONITORING / "rules.yml").read_text("utf-8"))
    shown = {
        name: json.loads(text)
        for one in _by_kind("monitoring", "ConfigMap").values()
        for name, text in one["data"].items()
        if name.endswith(".json")
    }
    kept = {path.name: json.loads(path.read_text("utf-8")) for path in (_MONITORING / "dashboards").glob("*.json")}
    assert shown == kept


@needs_helm
def test_an_ingress_has_every_path_of_the_api_but_metrics_and_probes() -> None:
    ingresses = _by_kind("ingress", "Ingress")
    assert ingresses.keys() == {"nova-api", "nova-console", "nova-telegram"}
    paths = [one["path"] for one in ingresses["nova-api"]["spec"]["rules"][0]["http"]["paths"]]

    def reaches(address: str) -> bool:
        return any(address == path or address.startswith(f"{path}/") for path in paths)

    inside = {"/healthz", "/readyz", "/metrics"}
    public = {*idle_api().openapi()["paths"], *(door.prefix.rstrip("/") for door in DOORS.values())} - inside
    assert [address for address in public if not reaches(address)] == []
    assert [address for address in inside if reaches(address)] == []
    settings = _settings(_values("ingress"))
    assert "nova.example.org" in json.loads(settings["NOVA_ALLOWED_HOSTS"])
    assert settings["NOVA_API__PUBLIC_URL"] == "https://nova.example.org"
    assert json.loads(settings["NOVA_API__TRUSTED_PROXIES"]) == ["nova-console-pods", "10.244.0.0/16"]


@needs_helm
def test_single_sign_on_reaches_api_and_console_and_its_secret_the_console_alone() -> None:
    given = {"NOVA_OIDC__ISSUER", "NOVA_OIDC__CLIENT_ID", "NOVA_OIDC__GRANTS"}
    assert given <= _settings(_values("sign-on")).keys()
    deployments = _by_kind("sign-on", "Deployment")
    variables = {
        name: {each["name"]: each for each in one["spec"]["template"]["spec"]["containers"][0].get("env", [])}
        for name, one in deployments.items()
    }
    assert given <= variables["nova-console"].keys()
    secret = "NOVA_OIDC__CLIENT_SECRET"
    assert variables["nova-console"][secret]["valueFrom"]["secretKeyRef"]["optional"] is True
    assert [name for name, found in variables.items() if secret in found] == ["nova-console"]
    policies = _by_kind("sign-on", "NetworkPolicy")
    for name in ("nova-api", "nova-console"):
        ports = [port["port"] for rule in policies[name]["spec"]["egress"] for port in rule["ports"]]
        assert 443 in ports, name
    assert "egress" not in _by_kind("default", "NetworkPolicy")["nova-api"]["spec"]


@needs_helm
def test_routes_of_gateways_have_the_paths_of_an_ingress() -> None:
    routes = _by_kind("gateway", "HTTPRoute")
    assert _by_kind("gateway", "Ingress") == {}
    assert {name: one["spec"]["hostnames"] for name, one in routes.items()} == {
        "nova-api": ["nova.example.org"],
        "nova-console": ["console.example.org"],
    }
    (rule,) = routes["nova-api"]["spec"]["rules"]
    paths = [one["path"] for one in _by_kind("ingress", "Ingress")["nova-api"]["spec"]["rules"][0]["http"]["paths"]]
    matched = [one["path"]["value"] for one in rule["matches"]]
    assert matched == [path for path in paths if path in {"/v1", "/sso", "/docs", "/openapi.json", "/openai"}]
    assert rule["timeouts"] == {"request": "0s"}
    (reference,) = rule["backendRefs"]
    service = _by_kind("gateway", "Service")[reference["name"]]
    assert reference["port"] in {port["port"] for port in service["spec"]["ports"]}


@needs_helm
def test_an_ingress_buffers_no_events_and_waits_as_the_page_of_proxies_says() -> None:
    page = (ROOT / "docs" / "reverse-proxy.md").read_text("utf-8")
    shown = dict(re.findall(r'^(nginx\.ingress\S+): "?(\w+)"?$', page, re.MULTILINE))
    assert shown
    assert default_values()["ingress"]["annotations"] == shown


@needs_helm
async def test_what_keda_counts_are_the_open_runs_of_the_workers(database: Database) -> None:
    queries = [one["spec"]["triggers"][0]["metadata"]["query"] for one in _by_kind("keda", "ScaledObject").values()]
    assert len(queries) == 3
    async with database.connection() as connection:
        for query in queries:
            assert await connection.fetchval(query) == 0
