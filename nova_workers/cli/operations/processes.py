"""`nova up`, `api`, `worker`, `beat`, `console` and `flower`: replace this process with the named one.

Each is started by the name of its module, never imported: the command line stays light, and signals, exit
codes and logs are those of the real process.
"""

import errno
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.base.config import Settings, load_settings, unknown_variables
from nova_workers.base.errors import ConfigurationError, InvalidInput
from nova_workers.base.project_files import name_in
from nova_workers.cli.command import ApiKeyOption, ApiUrlOption
from nova_workers.cli.target import find_servers, find_target, read_state
from nova_workers.devstack.commands import (
    api_command,
    beat_command,
    console_command,
    flower_command,
    worker_command,
)
from nova_workers.devstack.environments import FleetProcessKind, environment_for
from nova_workers.devstack.home import FLOWER_PASSWORD_FILE, FLOWER_USER, flower_password

app = typer.Typer(add_completion=False, rich_markup_mode=None)

ProjectOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--project",
        metavar="WHEEL",
        help="A project that `nova build` made, of the tenant ten_default, beside those of NOVA_TOOLS__PROJECTS. "
        "Repeatable.",
    ),
]


@app.command("up")
def up(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the API.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes.")] = None,
    projects: ProjectOption = None,
) -> None:
    """Start the whole fleet on this machine.

    Postgres, Valkey, migrations, API, worker, beat, web console and Flower, with data under NOVA_HOME.
    NOVA_DATABASE_URL and NOVA_REDIS_URL replace the embedded servers. Ctrl-C stops all of it.
    """
    add_projects(projects)
    _read_settings()
    arguments = [sys.executable, "-m", "nova_workers.devstack"]
    if port is not None:
        arguments += ["--port", str(port)]
    if workers is not None:
        arguments += ["--workers", str(workers)]
    become(arguments)


@app.command("api")
def api(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on.")] = None,
    projects: ProjectOption = None,
) -> None:
    """Run one API process."""
    add_projects(projects)
    settings = _read_settings()
    host, port = host or settings.api.host, settings.api.port if port is None else port
    environment = {**_servers(settings), "NOVA_API__HOST": host}
    _need_port(host, port, "NOVA_API__")
    become_part("api", api_command(host=host, port=port, log_level=settings.telemetry.log_level), environment, settings)


@app.command("worker")
def worker(
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Turns at once.")] = None,
    queues: Annotated[str | None, typer.Option("--queues", "-Q", help="Names with commas between.")] = None,
    pool: Annotated[str | None, typer.Option("--pool", help="Execute only runs of tenants with this pool.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Celery's name for it, to which a part of its own is added.")
    ] = None,
    projects: ProjectOption = None,
) -> None:
    """Run one worker process."""
    add_projects(projects)
    if pool:
        os.environ["NOVA_WORKER__POOL"] = pool
    settings = _read_settings()
    command = worker_command(
        concurrency=concurrency or settings.worker.concurrency,
        queues=tuple(part.strip() for part in queues.split(",")) if queues else settings.worker.consumed_queues(),
        name=name,
        log_level=settings.telemetry.log_level,
    )
    environment = _servers(settings)
    if concurrency:
        # The worker reports its slots from the settings; the option must not disagree with them.
        environment["NOVA_WORKER__CONCURRENCY"] = str(concurrency)
    become_part("worker", command, environment, settings)


@app.command("beat")
def beat() -> None:
    """Run the scheduler of periodic tasks. Several at once are safe."""
    settings = _read_settings()
    become_part("beat", beat_command(log_level=settings.telemetry.log_level), _broker(settings), settings)


@app.command("console")
def console(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.")] = None,
    login: Annotated[
        bool, typer.Option("--login", help="Print a one-time login for the running console of this home, and end.")
    ] = False,
    api_url: ApiUrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Run the web console of a fleet. It prints a login link that is valid once, for 15 minutes."""
    settings = _read_settings()
    if login:
        running = read_state(settings.home).get("console_url")
        become([sys.executable, "-m", "nova_workers.console", *([running] if isinstance(running, str) else [])])
    target = find_target(settings.home, api_url=api_url, api_key=api_key, with_session=False)
    host, port = host or settings.console.host, port or settings.console.port
    _need_port(host, port, "NOVA_CONSOLE__")
    environment = {"NOVA_API_URL": target.url, "NOVA_CONSOLE__HOST": host, "NOVA_CONSOLE__PORT": str(port)}
    if target.api_key is not None:
        environment["NOVA_API_KEY"] = target.api_key
    command = console_command(host=host, port=port, log_level=settings.telemetry.log_level)
    become_part("console", command, environment, settings)


@app.command("flower")
def flower(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5555,
) -> None:
    """Run Flower, the view of Celery's tasks.

    Its user is `nova`; the password is NOVA_FLOWER__PASSWORD, else it is in a file of NOVA_HOME, which is made.
    """
    settings = _read_settings()
    environment = _broker(settings)
    _need_port(host, port)
    environment["NOVA_FLOWER__PASSWORD"] = flower_password(settings)
    if settings.flower.password is None:
        sys.stderr.write(
            f"nova: Flower's user is {FLOWER_USER!r}, its password is in {settings.home / FLOWER_PASSWORD_FILE}\n"
        )
    become_part("flower", flower_command(host=host, port=port), environment, settings)


def add_projects(wheels: Sequence[Path] | None) -> None:
    """Add wheels to the projects of the settings; one takes the place of a project with its name."""
    if not wheels:
        return
    for wheel in wheels:
        if not wheel.is_file():
            raise InvalidInput(f"--project: there is no file {str(wheel)!r}. `nova build` makes a wheel of a project.")
    given = [{"wheel": str(wheel.resolve())} for wheel in wheels]
    names = {name_in(wheel.name) for wheel in wheels}
    known = [each.model_dump(mode="json", exclude_none=True) for each in load_settings().tools.projects]
    kept = [each for each in known if each["name"] not in names]
    os.environ["NOVA_TOOLS__PROJECTS"] = json.dumps([*kept, *given])


def _read_settings() -> Settings:
    """Return the settings, and print a warning for each NOVA_ variable that names none."""
    settings = load_settings()
    for sentence in unknown_variables(os.environ):
        sys.stderr.write(f"nova: {sentence}\n")
    return settings


def _servers(settings: Settings) -> dict[str, str]:
    """Return the variables that connect a process to the given servers, else to those of `nova up`."""
    # Each raises with advice if no server is found.
    database_url = find_servers(settings).database_url or settings.require_database_url()
    return {"NOVA_DATABASE_URL": database_url, **_broker(settings)}


def _broker(settings: Settings) -> dict[str, str]:
    """Return the same as `_servers`, for a process that only needs Redis."""
    return {"NOVA_REDIS_URL": find_servers(settings).redis_url or settings.require_redis_url()}


def _need_port(host: str, port: int, section: str = "") -> None:
    """Refuse an address that cannot be listened on with an error; the process itself would end with a traceback.

    Args:
        host: Of the server.
        port: Of the server.
        section: The prefix of the settings that it came from, if there are any.

    Raises:
        ConfigurationError: The port cannot be bound.
    """
    ways = {name: f"--{name}{f' or {section}{name.upper()}' if section else ''}" for name in ("host", "port")}
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the servers do, so that a port with connections in TIME_WAIT counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(f"Port {port} of {host} is taken; give another with {ways['port']}.") from error
        raise ConfigurationError(
            f"{host}, port {port}, cannot be listened on: {error.strerror or error}. Give an address of this machine "
            f"with {ways['host']}."
        ) from error


def become_part(kind: FleetProcessKind, command: list[str], environment: dict[str, str], settings: Settings) -> None:
    """Replace this process with a part of the fleet, which gets the secrets that it uses and no others."""
    become(command, {**environment_for(kind, os.environ, settings), **environment})


def become(command: list[str], environment: Mapping[str, str] = os.environ) -> None:
    """Replace this process with a command."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], command, environment)  # noqa: S606 - replacing this process is the purpose
