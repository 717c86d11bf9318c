"""The manifests for kustomize are the chart's: written from it, and the same objects after `kubectl kustomize`."""

from __future__ import annotations

import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.support.data.charts import CHART, KUBECTL, RELEASE, Document, helm, needs_helm
from tests.support.data.documents import ROOT

_FOLDER = ROOT / "deploy" / "kubernetes"
_MADE = runpy.run_path(str(ROOT / "deploy" / "environment" / "manifests.py"))
_OF_HELM = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/", "checksum/settings")


@needs_helm
def test_the_manifests_are_written_from_the_chart() -> None:
    wanted = dict(_MADE["files"]())
    folders = {path.parent for path in wanted}
    by_hand = {"kustomization.yaml", "namespace.yaml"}
    kept = [path for folder in folders for path in folder.iterdir() if path.name not in by_hand]
    assert {path: path.read_text("utf-8") for path in kept} == wanted


def _plain(value: Any) -> Any:
    """Return what two renderings have in common: without labels of Helm, lists in the order of their names."""
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if key != "namespace" and not key.startswith(_OF_HELM)}
        parts = {key: _plain(part) for key, part in kept.items()}
        # Annotations, of which Helm's were all.
        return {key: part for key, part in parts.items() if part != {} or kept[key] == {}}
    if isinstance(value, list):
        named = [_plain(part) for part in value]
        return sorted(named, key=lambda part: part["name"]) if all("name" in part for part in named) else named
    return value


def _objects(text: str) -> dict[tuple[str, str], Document]:
    return {(one["kind"], one["metadata"]["name"]): _plain(one) for one in yaml.load_all(text, yaml.CSafeLoader) if one}


@needs_helm
def test_an_overlay_with_all_components_is_the_chart_with_their_values(tmp_path: Path) -> None:
    above = os.path.relpath(_FOLDER, tmp_path.resolve())
    overlay = {
        "resources": [f"{above}/base"],
        "components": [f"{above}/{component}" for component in _MADE["COMPONENTS"]],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    built = subprocess.run([KUBECTL, "kustomize", tmp_path], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    values = [word for value in _MADE["COMPONENTS"].values() for word in ("--set", value)]
    done = helm("template", RELEASE, CHART, "--namespace", RELEASE, *values)
    objects = _objects(built.stdout)
    assert objects.pop(("Namespace", RELEASE))["metadata"]["labels"] == {
        "pod-security.kubernetes.io/enforce": "restricted"
    }
    assert objects == _objects(done.stdout)
