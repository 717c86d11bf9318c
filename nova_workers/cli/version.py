"""`nova version`."""

import platform
from importlib import metadata

import typer

from nova_workers.base.release import DISTRIBUTION, release
from nova_workers.cli.terminal.output import JsonOption, Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_SHOWN = (DISTRIBUTION, "celery", "anthropic", "openai", "mcp", "fastapi", "redis", "asyncpg")


@app.command("version")
def version(json_mode: JsonOption = False) -> None:
    """Print the versions of this installation."""
    found = {name: version_of(name) for name in _SHOWN} | {"python": platform.python_version()}
    Output(json_mode=json_mode).record(found, lambda versions: versions.items())


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution, or why it has none."""
    if distribution == DISTRIBUTION:
        return release()
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "missing"
