"""`nova orchestrations`: agents that run agents."""

import typer

from nova_workers.cli.orchestrations import config, models

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Agents that run agents: their configuration and models.",
)
app.add_typer(config.app, name="config")
app.add_typer(models.app, name="models")
