"""`nova orchestrations`: agents that run agents."""

from nova_workers.cli.orchestrations import changes, config, models
from nova_workers.cli.orchestrations.trees import app

__all__ = ["app"]

app.add_typer(changes.app)
app.add_typer(config.app, name="config")
app.add_typer(models.app, name="models")
