"""Findings of checks, as commands show them: what was seen, and what to do about it."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import typer

from nova_workers.base.errors import NovaError, in_one_line
from nova_workers.cli.terminal.output import Output

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
_LONGEST_S = 20.0
"""The longest time of a check: four of the client's slowest answers from a server that is away."""
_SOURCE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and how to fix a fault.

    `warn` is for what works but should be changed; only `fail` makes the command's exit code 1.
    """

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""


async def isolated(
    name: str, check: Callable[[], Awaitable[Sequence[Finding]]], *, longest_s: float = _LONGEST_S
) -> list[Finding]:
    """Return the findings of a check. One that raises or hangs is a finding itself, and harms no other check.

    Args:
        name: Of the finding, if the check fails.
        check: Starts the check.
        longest_s: After which it is stopped.
    """
    limit = asyncio.timeout(longest_s)
    try:
        async with limit:
            return [*await check()]
    except NovaError as error:
        return [Finding(name, "fail", f"not checked: {error.message}", "fix what the message names, and check again")]
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            fix = "see whether the server behind it answers, and check again"
            return [Finding(name, "fail", f"not checked: no answer within {longest_s:g} s", fix)]
        detail = f"this check failed: {type(error).__name__}: {in_one_line(error)} ({_place(error)})"
        return [Finding(name, "fail", detail, "the other checks are not affected; report this line, with its place")]


def report(out: Output, findings: Sequence[Finding]) -> None:
    """Write each finding in one line, with its fix below, or all as one document.

    Raises:
        typer.Exit: With 1, if something fails.
    """
    good = all(finding.state != "fail" for finding in findings)
    document = {"ok": good, "findings": [asdict(finding) for finding in findings]}
    out.write(document, lambda out, _: _show(out, findings))
    if not good:
        raise typer.Exit(1)


def _place(error: BaseException) -> str:
    """Return the last line of our code that an error passed through."""
    # The first frame is that of `isolated`.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_SOURCE)]
    last = (ours or frames)[-1]
    name = Path(last.filename)
    return f"{name.relative_to(_SOURCE.parent) if name.is_relative_to(_SOURCE) else name}:{last.lineno}, {last.name}"


def _show(out: Output, findings: Sequence[Finding]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark, style = _MARKS[finding.state]
        out.text(f"{mark} {finding.name:<{width}}  {finding.detail}", "" if finding.state == "ok" else style)
        if finding.fix:
            out.text(f"  {'':<{width}}  → {finding.fix}", style)
