"""`nova doctor`: check the installation, and say how to fix each fault."""

import asyncio
import os

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.operations.checks import (
    check_api,
    check_broker,
    check_console,
    check_database,
    check_embedded,
    check_variables,
)
from nova_workers.cli.operations.findings import report
from nova_workers.cli.target import find_servers, read_state

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


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
    report(session.out, findings)
