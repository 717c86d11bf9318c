"""The command line of each process of the fleet: the only place that builds them.

Each process is named by its module and never imported, so that signals, exit codes and logs are its own.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from nova_workers.base.release import part_name

API_APP = f"{part_name('api.app')}:create_app"
_PROTOCOL = "nova_workers.base.http_server.connections:GuardedProtocol"
# The protocol takes no WebSockets, and uvicorn would import a library for them.
_HTTP_ONLY = ("--loop", "uvloop", "--http", _PROTOCOL, "--ws", "none")
CONSOLE_APP = "nova_workers.console.server:create_console"
BEAT_APP = f"{part_name('beat.app')}:app"
WORKER_APP = "nova_workers.worker.app:app"

FLOWER_MAX_TASKS = 5_000
"""Flower had 273 MB after half an hour at 21 turns a second with 20,000. The ledger has all runs."""

FLOWER_CONFIG = Path(__file__).resolve().parents[1] / "worker" / "flowerconfig.py"
"""Shows the ids of run and thread on each task, and forbids what would bypass the fleet's own cancel and drain."""

_CELERY = "nova_workers.devstack.run_celery"

_UVICORN_DRAIN_S = 10
_CONSOLE_DRAIN_S = 1
"""Its streams never end by themselves, and a browser opens them again."""
_CONSOLE_PACKAGES = ("jinja2", "markdown_it", "nh3", "pygments", "python_multipart", "starlette", "uvicorn")


def api_command(*, host: str, port: int, log_level: str = "warning") -> list[str]:
    """Return the command line of one API process."""
    return [
        *_module("uvicorn", API_APP, "--factory", "--host", host, "--port", str(port)),
        *(*_HTTP_ONLY, "--no-access-log", "--log-level", log_level),
        # uvicorn believes X-Forwarded-For of every client on this machine; the application believes configured proxies.
        "--no-proxy-headers",
        *("--timeout-graceful-shutdown", str(_UVICORN_DRAIN_S)),
    ]


def console_command(*, host: str, port: int, log_level: str = "warning") -> list[str]:
    """Return the command line of one console process. Its environment has NOVA_API_URL and NOVA_API_KEY."""
    return [
        *_module("uvicorn", CONSOLE_APP, "--factory", "--host", host, "--port", str(port)),
        *(*_HTTP_ONLY, "--no-access-log", "--log-level", log_level),
        "--no-proxy-headers",
        *("--timeout-graceful-shutdown", str(_CONSOLE_DRAIN_S)),
    ]


def console_is_installed() -> bool:
    """Return whether the packages of the extra `console` are here."""
    return all(find_spec(name) is not None for name in _CONSOLE_PACKAGES)


def worker_command(
    *, concurrency: int, queues: tuple[str, ...], name: str | None = None, log_level: str = "warning"
) -> list[str]:
    """Return the command line of one worker process."""
    return [
        *_module(_CELERY, WORKER_APP, "worker", "--concurrency", str(concurrency), "--queues", ",".join(queues)),
        *("--loglevel", log_level),
        *(("--hostname", name) if name else ()),
    ]


def beat_command(*, log_level: str = "warning") -> list[str]:
    """Return the command line of beat. It keeps no schedule file: due times are in Postgres."""
    return _module(_CELERY, BEAT_APP, "beat", "--loglevel", log_level)


def flower_command(*, host: str, port: int) -> list[str]:
    """Return the command line of Flower. It loads the app of beat, the lightest that knows the broker."""
    # Otherwise it logs a warning for each inspection without an answer until the first worker is up.
    options = {"address": host, "port": port, "max-tasks": FLOWER_MAX_TASKS, "conf": FLOWER_CONFIG, "logging": "error"}
    return _module(
        *("celery", "--quiet", "--app", BEAT_APP, "flower"), *(f"--{name}={value}" for name, value in options.items())
    )


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "nova_workers.devstack.run_module", name, *arguments]
