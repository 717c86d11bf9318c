"""An upgrade changes nothing that Kubernetes refuses to change, and takes no object away."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
import yaml

from tests.support.data import previous_release
from tests.support.data.chart_identities import changes, identities, written
from tests.support.data.charts import KUBECTL, VALUE_SETS, Document, needs_helm, rendered
from tests.support.data.documents import ROOT


def _built(folder: Path) -> list[Document]:
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.load_all(done.stdout, yaml.CSafeLoader) if document]


@needs_helm
def test_the_manifests_change_a_fleet_of_the_previous_release_in_place(tmp_path: Path) -> None:
    archive = ["git", "-C", str(ROOT), "archive", previous_release.COMMIT, "deploy/kubernetes"]
    packed = subprocess.run(archive, capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip(f"release {previous_release.VERSION} is not in this clone")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as tar:
        tar.extractall(tmp_path, filter="data")
    before = identities(_built(tmp_path / "deploy" / "kubernetes" / "base"))
    after = identities(_built(ROOT / "deploy" / "kubernetes" / "base"))
    assert "Deployment nova-worker" in before
    # The one secret of 0.2.0 is several since: each process has its own.
    if previous_release.VERSION == "0.2.0":
        assert before.pop("secrets") == ["nova"]
        before["secrets"] = []
    assert changes(before, after) == []


@needs_helm
@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_the_chart_changes_a_fleet_of_its_previous_version_in_place(values: Path) -> None:
    before = written(values)
    assert len(before) > 3
    assert changes(before, identities(rendered(values))) == []


def test_a_change_that_kubernetes_refuses_is_found() -> None:
    claims = [{"metadata": {"name": "data"}}]
    before = {"StatefulSet a": {"volumeClaimTemplates": claims}, "Service b": {}, "secrets": ["c"]}
    assert changes(before, before) == []
    assert changes(before, {**before, "Service d": {}}) == []
    assert changes(before, {"StatefulSet a": {"volumeClaimTemplates": []}, "secrets": []}) == [
        "Service b is gone",
        "the secret c is not read",
        "StatefulSet a: {'volumeClaimTemplates': [{'metadata': {'name': 'data'}}]} became {'volumeClaimTemplates': []}",
    ]
