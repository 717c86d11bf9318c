"""`nova doctor`: check the installation, and say how to fix each fault."""

import asyncio
import os
from dataclasses import asdict

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.operations.checks import (
    Finding,
    check_api,
    check_broker,
    check_console,
    check_database,
    check_embedded,
    check_variables,
)
from nova_workers.cli.target import find_servers, read_state
from nova_workers.cli.terminal.output import Output

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@remote(app, "doctor")
async def doctor(session: Session) -> None:
    """Check everything, and say how to fix it. Exits with 1 when something fails."""
    servers = find_servers(session.settings)
    looked = await asyncio.gather(
        check_database(servers.database_url),
        check_broker(servers.redis_url),
        check_api(session.client, session.target),
        check_console(read_state(session.settings.home).get("console_url")),
    )
    findings = [
        *check_variables(os.environ),
        *check_embedded(servers),
        *(finding for part in looked for finding in part),
    ]
    good = all(finding.state != "fail" for finding in findings)
    if session.out.json:
        session.out.document({"ok": good, "findings": [asdict(finding) for finding in findings]})
    else:
        show(session.out, findings)
    if not good:
        raise typer.Exit(1)


def show(out: Output, findings: list[Finding]) -> None:
    """Write each finding in one line, with its fix below."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark, style = _MARKS[finding.state]
        out.text(f"{mark} {finding.name:<{width}}  {finding.detail}", "" if finding.state == "ok" else style)
        if finding.fix:
            out.text(f"  {'':<{width}}  → {finding.fix}", style)
