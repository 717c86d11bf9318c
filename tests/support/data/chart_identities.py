"""What an upgrade of the chart may not change: what Kubernetes refuses to change, names, and secrets that users made.

Of the first version, which no release has, ``python -m tests.support.data.chart_identities`` writes it down for each
set of values that is not yet there: what is there is what installed fleets have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.data.charts import VALUE_SETS, Document, rendered, secrets_of, workloads
from tests.support.data.documents import ROOT

FILE: Final = ROOT / "tests" / "contract" / "kubernetes" / "identities.yaml"
_HEAD: Final = "# What the first version of the chart makes; see tests/support/data/chart_identities.py.\n"
_MUTABLE: Final = {
    "Deployment": {"replicas", "strategy", "template"},
    "StatefulSet": {"replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy"},
    "PersistentVolumeClaim": {"resources"},
    "Service": {"ports", "selector", "publishNotReadyAddresses"},
}
"""Fields of ``spec`` that may change, of the kinds whose objects have to stay."""


def _constant(document: Document) -> dict[str, Any]:
    mutable = _MUTABLE[document["kind"]]
    return {field: value for field, value in document["spec"].items() if field not in mutable}


def identities(documents: list[Document]) -> dict[str, Any]:
    """Return the constant fields of each object that has to stay, by kind and name, and the secrets that pods read."""
    objects = {
        f"{one['kind']} {one['metadata']['name']}": _constant(one) for one in documents if one["kind"] in _MUTABLE
    }
    read = {name for pod in workloads(documents).values() for name in secrets_of(pod["containers"][0])}
    return {**dict(sorted(objects.items())), "secrets": sorted(read)}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what an upgrade would change although it may not. New objects are no change."""
    gone = [f"{name} is gone" for name in before if name not in after]
    lost = [f"the secret {name} is not read" for name in before["secrets"] if name not in after["secrets"]]
    differing = [
        f"{name}: {value} became {after[name]}"
        for name, value in before.items()
        if name != "secrets" and name in after and after[name] != value
    ]
    return [*gone, *lost, *differing]


def written(values: Path) -> dict[str, Any]:
    """Return what is written down for a set of values."""
    return yaml.safe_load(FILE.read_text("utf-8"))[values.stem]


def main() -> None:
    """Write down the sets of values that are not yet there."""
    known = yaml.safe_load(FILE.read_text("utf-8")) if FILE.exists() else {}
    new = {values.stem: identities(rendered(values)) for values in VALUE_SETS if values.stem not in known}
    text = yaml.safe_dump({**known, **new}, sort_keys=False, default_flow_style=None, width=160)
    FILE.write_text(f"{_HEAD}{text}", "utf-8")


if __name__ == "__main__":
    main()
