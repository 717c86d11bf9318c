"""`nova security check`: try the walls of a fleet from outside, and say what to do about each that is missing."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.operations.findings import report
from nova_workers.cli.operations.sandbox_checks import check_sandbox_here
from nova_workers.cli.security.raw import loopback
from nova_workers.cli.security.walls import check_walls
from nova_workers.cli.target import read_state

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Try the walls of a fleet from outside."
)


@app.callback()
def _group() -> None:
    """Keep `check` a command of its own."""


@remote(app, "check")
async def check(
    session: Session,
    other_key: Annotated[
        str | None, typer.Option("--other-key", help="A key of another tenant: neither may read what the other has.")
    ] = None,
    console_url: Annotated[str | None, typer.Option(help="The web console. Default: that of `nova up`.")] = None,
    flower_url: Annotated[str | None, typer.Option(help="Flower. Default: that of `nova up`.")] = None,
    patience: Annotated[
        float, typer.Option(min=1, max=600, help="Seconds that a slow client waits to be cut off.")
    ] = 75.0,
) -> None:
    """Try what strangers and other tenants could, and say what to do where they succeed. Exits with 1 then.

    Nothing is written: requests that would change something carry no JSON, or end before their body. It takes as
    long as the fleet waits for slow clients, about a minute; `--patience` bounds it.
    """
    state = read_state(session.home) if loopback(session.target.url) else {}
    findings = await check_walls(
        session.target,
        other_key=other_key,
        console_url=_address(console_url, state.get("console_url")),
        flower_url=_address(flower_url, state.get("flower_url")),
        patience_s=patience,
    )
    if state:
        findings += await check_sandbox_here(session.settings)
    report(session.out, findings)


def _address(given: str | None, of_state: object) -> str | None:
    return given or (of_state if isinstance(of_state, str) else None)
