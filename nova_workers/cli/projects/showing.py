"""Plans as people read them."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from nova_workers.base.vocabulary import ProjectAction
from nova_workers.cli.terminal.output import Output, printable
from nova_workers.contracts.http.projects import ProjectField, ProjectPlan, ProjectStep

_SIGNS: Final[dict[ProjectAction, tuple[str, str]]] = {
    "create": ("+", "green"),
    "update": ("~", "yellow"),
    "rename": ("→", "yellow"),
    "delete": ("-", "red"),
    "adopt": ("=", "cyan"),
    "forget": (".", "dim"),
    "drift": ("!", "magenta"),
    "orphan": ("?", "magenta"),
}
_WORDS: Final[dict[ProjectAction, str]] = {
    "create": "to make",
    "update": "to change",
    "rename": "to rename",
    "delete": "to delete",
    "adopt": "to adopt",
    "forget": "deleted on the fleet",
    "drift": "kept as the fleet has them",
    "orphan": "in the project no longer, and kept",
}
_DONE: Final[dict[ProjectAction, str]] = {
    "create": "made",
    "update": "changed",
    "rename": "renamed",
    "delete": "deleted",
    "adopt": "adopted",
}
_MAX_LINES: Final = 40


def show_plan(out: Output, plan: ProjectPlan) -> None:
    """Write a plan: a line for each item, and under it what changes."""
    width = max((len(step.name) for step in plan.steps), default=0)
    for step in plan.steps:
        sign, style = _SIGNS[step.action]
        out.text(f"{sign} {step.kind:<7}  {step.name:<{width}}  {_about(step)}".rstrip(), style=style)
        for each in step.fields:
            for line in _changed(each):
                out.text(f"    {line}", style="magenta" if each.drifted else "dim")
    if plan.steps:
        out.text()
    out.text(summary(plan))


def summary(plan: ProjectPlan) -> str:
    """Return a sentence about what a plan does, or an apply has done."""
    if not plan.steps:
        return f"{plan.project}: nothing to do, {_items(plan.unchanged)} as the project has them."
    counts = Counter(step.action for step in plan.steps)
    words = _WORDS | _DONE if plan.applied else _WORDS
    parts = [f"{counts[action]} {word}" for action, word in words.items() if counts[action]]
    return f"{plan.project}: {', '.join(parts)}; {plan.unchanged} unchanged."


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


def _about(step: ProjectStep) -> str:
    parts: list[str] = []
    if step.former_name is not None:
        parts.append(f"was {step.former_name}")
    if step.action == "create" and step.drifted:
        parts.append("was deleted on the fleet")
    elif step.drifted:
        parts.append("changed on the fleet")
    elif step.action in {"forget", "orphan"}:
        parts.append(_WORDS[step.action])
    return ", ".join(parts)


def _changed(each: ProjectField) -> Iterator[str]:
    """Yield the lines that show a changed field: long texts as a difference."""
    mark = "  (changed on the fleet)" if each.drifted else ""
    before, after = _text(each.before), _text(each.after)
    if "\n" not in before + after and len(before) + len(after) <= 100:
        yield f"{each.field}: {before} → {after}{mark}"
        return
    yield f"{each.field}:{mark}"
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    for at, line in enumerate(line for line in lines if not line.startswith(("---", "+++", "@@"))):
        if at == _MAX_LINES:
            yield "  …"
            return
        yield f"  {printable(line)}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value if "\n" in value else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, (dict, list)) and value else None)
