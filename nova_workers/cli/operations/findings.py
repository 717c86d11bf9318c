"""Findings of checks, as commands show them: what was seen, and what to do about it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import typer

from nova_workers.cli.terminal.output import Output

__all__ = ["Finding", "report"]

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and how to fix a fault.

    `warn` is for what works but should be changed; only `fail` makes the command's exit code 1.
    """

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""


def report(out: Output, findings: Sequence[Finding]) -> None:
    """Write each finding in one line, with its fix below, or all as one document.

    Raises:
        typer.Exit: With 1, if something fails.
    """
    good = all(finding.state != "fail" for finding in findings)
    if out.json:
        out.document({"ok": good, "findings": [asdict(finding) for finding in findings]})
    else:
        _show(out, findings)
    if not good:
        raise typer.Exit(1)


def _show(out: Output, findings: Sequence[Finding]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark, style = _MARKS[finding.state]
        out.text(f"{mark} {finding.name:<{width}}  {finding.detail}", "" if finding.state == "ok" else style)
        if finding.fix:
            out.text(f"  {'':<{width}}  → {finding.fix}", style)
