"""Writes the manifests of deploy/kubernetes for kustomize, as Helm renders the chart.

`python deploy/environment/manifests.py` writes them, as `make format` does; with `--check` it fails if one differs. It
needs helm, which `make kubernetes` fetches, and does nothing without. The base is the chart without values. A component
is what its values add to the base: objects of their own, and patches of the base's objects.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "nova-workers"
FOLDER: Final = ROOT / "deploy" / "kubernetes"
HELM: Final = ROOT / ".cache" / "kubernetes" / "helm"
COMPONENTS: Final = {
    "agents": "agentsVolume.enabled=true",
    "keda": "worker.autoscaling.kind=keda",
    "telegram": "telegram.enabled=true",
}
"""The value that turns each on."""
RELEASE: Final = "nova"

_HEAD: Final = "# Made from deploy/helm/nova-workers by `make format`.\n"
_SOURCE: Final = re.compile(r"^---\n# Source: nova-workers/templates/(?P<name>[\w-]+\.yaml)\n", re.MULTILINE)
_OF_HELM: Final = re.compile(
    r"^ *(?:app\.kubernetes\.io/(?:instance|managed-by)|helm\.sh/[\w-]+|checksum/settings): .*\n", re.MULTILINE
)
"""Labels and annotations of a release. Without them objects have the selectors that they had before the chart."""
_EMPTY_ANNOTATIONS: Final = re.compile(r"^(?P<indent> *)annotations:\n(?!(?P=indent) )", re.MULTILINE)
_ORDER: Final = ("ConfigMap", "PersistentVolumeClaim", "Service", "Deployment", "Job")
"""Which kinds stand first in a file; others follow in Helm's order."""

_Key = tuple[str, str]


def render(*values: str) -> dict[_Key, tuple[str, str]]:
    """Return the file and the text of each object, by kind and name."""
    words = [HELM, "template", RELEASE, CHART, "--namespace", RELEASE]
    for value in values:
        words += ["--set", value]
    environment = {"HOME": str(HELM.parent), "KUBECONFIG": "/dev/null"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    _, *parts = _SOURCE.split(done.stdout)
    found: dict[_Key, tuple[str, str]] = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        plain = _EMPTY_ANNOTATIONS.sub("", _OF_HELM.sub("", text)).strip() + "\n"
        document = yaml.safe_load(plain)
        found[document["kind"], document["metadata"]["name"]] = name, plain
    return found


def _place(key: _Key) -> int:
    return _ORDER.index(key[0]) if key[0] in _ORDER else len(_ORDER)


def _by_file(objects: dict[_Key, tuple[str, str]]) -> dict[str, str]:
    files: dict[str, list[str]] = {}
    for key in sorted(objects, key=_place):
        name, text = objects[key]
        files.setdefault(name, []).append(text)
    return {name: _HEAD + "---\n".join(texts) for name, texts in files.items()}


def difference(old: Any, new: Any) -> Any:
    """Return what a strategic merge adds to `old` to make `new` of it. Items of lists are matched by their names."""
    if isinstance(old, dict) and isinstance(new, dict):
        changed = {key: difference(old.get(key), value) for key, value in new.items() if old.get(key) != value}
        return {**changed, **dict.fromkeys(old.keys() - new.keys())}
    if isinstance(old, list) and isinstance(new, list):
        known = {item["name"]: item for item in old}
        return [
            {"name": item["name"], **difference(known.get(item["name"], {}), item)}
            for item in new
            if known.get(item["name"]) != item
        ]
    return new


def _patch(old: str, new: str) -> str:
    before, after = yaml.safe_load(old), yaml.safe_load(new)
    named = {"apiVersion": after["apiVersion"], "kind": after["kind"], "metadata": {"name": after["metadata"]["name"]}}
    return _HEAD + yaml.safe_dump(named | difference(before, after), sort_keys=False)


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file with the text that it should have."""
    base = render()
    for name, text in _by_file(base).items():
        yield FOLDER / "base" / name, text
    for component, value in COMPONENTS.items():
        objects = render(value)
        own = {key: found for key, found in objects.items() if key not in base}
        for name, text in _by_file(own).items():
            yield FOLDER / component / name, text
        for key in base.keys() & objects.keys():
            old, new = base[key][1], objects[key][1]
            if old != new:
                yield FOLDER / component / f"{key[1].removeprefix(f'{RELEASE}-')}-patch.yaml", _patch(old, new)


def main() -> int:
    """Write the files, or with ``--check`` name those that differ."""
    if not HELM.exists():
        return 0
    differing: list[str] = []
    for path, text in files():
        if "--check" not in sys.argv:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            differing.append(str(path.relative_to(ROOT)))
    if differing:
        sys.stderr.write(f"{', '.join(differing)}: make format writes these from the chart\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
