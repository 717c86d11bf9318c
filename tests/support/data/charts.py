"""The chart, as `helm` renders it, and the schemas of Kubernetes' objects. `make kubernetes` fetches both."""

from __future__ import annotations

import functools
import subprocess
import zipfile
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import orjson
import pytest
import yaml

from tests.support.data.documents import ROOT

CHART: Final = ROOT / "deploy" / "helm" / "nova-workers"
HOME: Final = ROOT / ".cache" / "kubernetes"
HELM: Final = HOME / "helm"
KUBECTL: Final = HOME / "kubectl"
VALUE_SETS: Final = sorted((ROOT / "tests" / "contract" / "kubernetes" / "values").glob("*.yaml"))
RELEASE: Final = "nova"
POD_KINDS: Final = frozenset({"Deployment", "StatefulSet", "Job"})
_SCHEMAS: Final = "kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
_GROUPS: Final = {
    "v1": "core.v1",
    "apps/v1": "apps.v1",
    "autoscaling/v2": "autoscaling.v2",
    "batch/v1": "batch.v1",
    "networking.k8s.io/v1": "networking.v1",
    "policy/v1": "policy.v1",
}
"""Which part of the schemas an API version is. Those of operators, such as KEDA, are not in them."""

Document = dict[str, Any]

needs_helm = pytest.mark.skipif(
    not HELM.exists(), reason="helm and kubectl are not there; `make kubernetes` fetches them, for Linux on x86-64"
)


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `helm`, which asks no server."""
    # It would look for plugins, caches and a cluster's address elsewhere.
    environment = {"HOME": str(HOME), "KUBECONFIG": "/dev/null"}
    return subprocess.run([HELM, *words], env=environment, capture_output=True, text=True, check=False)


def refusal(*words: str) -> str:
    """Return what `helm` says of values that it refuses."""
    done = helm("template", RELEASE, CHART, *words)
    assert done.returncode != 0, "the values were accepted"
    return done.stderr


@functools.cache
def rendered_text(values: Path) -> str:
    """Return what `helm` writes for a file of values, in the namespace and the release `nova`."""
    done = helm("template", RELEASE, CHART, "--namespace", RELEASE, "--values", values)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def rendered(values: Path) -> list[Document]:
    """Return the objects of a file of values."""
    return [document for document in yaml.load_all(rendered_text(values), yaml.CSafeLoader) if document]


def workloads(documents: list[Document]) -> dict[str, Document]:
    """Return the specifications of pods, by the names of the objects that make them."""
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in documents if one["kind"] in POD_KINDS}


def secrets_of(container: dict[str, Any]) -> set[str]:
    """Return the names of the secrets that a container reads."""
    whole = {source["secretRef"]["name"] for source in container.get("envFrom", ()) if "secretRef" in source}
    single = {entry["valueFrom"]["secretKeyRef"]["name"] for entry in container.get("env", ()) if "valueFrom" in entry}
    return whole | single


def default_values() -> dict[str, Any]:
    """Return the chart's own values."""
    return yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))


@functools.cache
def _definitions(version: str) -> dict[str, Any]:
    (wheel,) = HOME.glob("kubernetes_validate-*.whl")
    with zipfile.ZipFile(wheel) as files:
        return orjson.loads(files.read(_SCHEMAS.format(version=version)))


@functools.cache
def _validator(version: str, kind: str) -> jsonschema_rs.Validator:
    definitions = _definitions(version)
    registry = jsonschema_rs.Registry([("json-schema:///api/_definitions.json", definitions)])
    reference = f"json-schema:///api/_definitions.json#/$defs/io.k8s.api.{kind}"
    return jsonschema_rs.validator_for({"$ref": reference}, registry=registry)


def faults(document: Document, version: str) -> list[str]:
    """Return what a release of Kubernetes, such as ``1.34``, finds wrong with an object of its own API."""
    group = _GROUPS.get(document["apiVersion"])
    if group is None:
        return []
    named = f"{document['kind']} {document['metadata']['name']}"
    errors = _validator(version, f"{group}.{document['kind']}").iter_errors(document)
    return [f"{named}: {list(error.instance_path)}: {error.message}" for error in errors]
