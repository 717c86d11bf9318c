"""Writes docs/reference/helm-values.md from the comments and defaults of the chart's values.yaml.

`python deploy/environment/helm_values.py` writes it, as `make format` does; with `--check` it fails if it differs. The
comment above a value is its row. A value without one must be a part of one that has it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
VALUES: Final = ROOT / "deploy" / "helm" / "nova-workers" / "values.yaml"
PAGE: Final = ROOT / "docs" / "reference" / "helm-values.md"

_HEAD: Final = """# Values of the chart

Made from `deploy/helm/nova-workers/values.yaml` by `make format`. [Kubernetes](../kubernetes.md) shows how to use them.
A name that is not here, and a value of another form, are refused by `values.schema.json`.
"""
_TABLE: Final = "\n| value | default | |\n| --- | --- | --- |\n"
_KEY: Final = re.compile(r"^(?P<indent> *)(?P<name>[\w./-]+):")

Path_ = tuple[str, ...]


def documented(text: str) -> dict[Path_, str]:
    """Return the comments of values, by the path of each value in the file's order; empty where there is none."""
    found: dict[Path_, str] = {}
    above: list[str] = []
    path: Path_ = ()
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            above.append(stripped.removeprefix("#").strip())
        elif match := _KEY.match(line):
            path = (*path[: len(match["indent"]) // 2], match["name"])
            found[path] = " ".join(above)
            above = []
        else:
            above = []
    return found


def rows(text: str) -> list[tuple[Path_, object, str]]:
    """Return path, default and comment of each value that has a row.

    Raises:
        SystemExit: A value has no comment, and is no part of one that has.
    """
    comments, values = documented(text), yaml.safe_load(text)
    with_row = [path for path, comment in comments.items() if comment and not _has_parts(path, comments)]
    for path in comments:
        is_part = any(path[: len(each)] == each for each in with_row)
        if not is_part and not any(other[: len(path)] == path for other in with_row):
            sys.exit(f"{VALUES.name}: {'.'.join(path)} has no comment")
    return [(path, _default(values, path), comments[path]) for path in with_row]


def _has_parts(path: Path_, comments: dict[Path_, str]) -> bool:
    return any(len(other) > len(path) and other[: len(path)] == path and comments[other] for other in comments)


def _default(values: Any, path: Path_) -> object:
    for name in path:
        values = values[name]
    return values


def rendered() -> str:
    """Return the text of the page: what stands alone first, then a section for each group."""
    sections: dict[str, list[str]] = {"General": []}
    for path, default, comment in rows(VALUES.read_text("utf-8")):
        shown = json.dumps(default, ensure_ascii=False).replace("|", "\\|")
        row = f"| `{'.'.join(path)}` | `{shown}` | {comment} |\n"
        sections.setdefault(path[0] if len(path) > 1 else "General", []).append(row)
    return _HEAD + "".join(f"\n## {heading}\n{_TABLE}{''.join(lines)}" for heading, lines in sections.items())


def main() -> int:
    """Write the page, or with ``--check`` fail if it differs."""
    if "--check" not in sys.argv:
        PAGE.write_text(rendered(), "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != rendered():
        sys.stderr.write(f"{PAGE.name}: make format writes it from {VALUES.relative_to(ROOT)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
