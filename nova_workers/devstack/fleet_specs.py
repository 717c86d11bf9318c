"""The specs of the fleet's own processes: command, environment and readiness check."""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping

import httpx2

from nova_workers.base.config import Settings
from nova_workers.devstack.commands import api_command, beat_command, console_command, flower_command, worker_command
from nova_workers.devstack.environments import environment_for, system_environment
from nova_workers.devstack.home import flower_password
from nova_workers.devstack.process import ProcessSpec

LOCAL_MODEL_APP = "nova_workers.devstack.stand_in.server:create_app"

_LOOPBACK = ("127.0.0.1", "::1")
_ANY = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
_PROBE_S = 2.0
_START_S = 90.0
"""A start is 1 to 5 s of imports; longer on a busy machine, or one that compiles them first."""
_HEARTBEATS = 2
"""One for Celery's loop, one for ours."""


def api_spec(
    settings: Settings, *, host: str, port: int, url: str, env: Mapping[str, str], with_console: bool
) -> ProcessSpec:
    """Return the API, ready when it reaches its database.

    Args:
        settings: The fleet's settings.
        host: Where it listens.
        port: Where it listens.
        url: How programs of this machine reach it.
        env: Its servers and keys.
        with_console: Whether a console of this machine states the addresses of its people.
    """
    command = api_command(host=host, port=port, log_level=settings.telemetry.log_level)
    if with_console:
        env = {**env, "NOVA_API__TRUSTED_PROXIES": json.dumps([*settings.api.trusted_proxies, *_this_machine(host)])}
    return ProcessSpec(
        "api",
        tuple(command),
        env,
        environment_for("api", os.environ, settings),
        ready=_serves(f"{url}/readyz"),
        ready_timeout_s=_START_S,
        stop_timeout_s=15.0,
    )


def worker_spec(settings: Settings, *, number: int, of: int, env: Mapping[str, str]) -> ProcessSpec:
    """Return one worker, ready when both of its loops have run.

    Args:
        settings: The fleet's settings.
        number: Which worker, from 1.
        of: The number of workers.
        env: Its servers and keys.
    """
    name = f"worker{number}" if of > 1 else "worker"
    beats = settings.home / "heartbeats" / name

    def forget_the_last_one() -> None:
        for beat in beats.glob("*"):
            beat.unlink()

    async def ready() -> bool:
        return len(list(beats.glob("*"))) >= _HEARTBEATS

    command = worker_command(
        concurrency=settings.worker.concurrency,
        queues=settings.worker.consumed_queues(),
        name=name,
        log_level=settings.telemetry.log_level,
    )
    own = {
        "NOVA_WORKER__HEARTBEAT_DIR": str(beats),
        "NOVA_WORKER__METRICS_PORT": str(worker_metrics_port(settings, number) or 0),
    }
    return ProcessSpec(
        name,
        tuple(command),
        {**env, **own},
        environment_for("worker", os.environ, settings),
        prepare=forget_the_last_one,
        ready=ready,
        ready_timeout_s=_START_S,
        # The drain's own watchdog ends the process first.
        stop_timeout_s=settings.worker.drain_deadline_s + 5.0,
    )


def worker_metrics_port(settings: Settings, number: int) -> int | None:
    """Return the Prometheus port of one of several workers on one machine; None if metrics are off."""
    first = settings.worker.metrics_port
    return first + number - 1 if first else None


def beat_spec(settings: Settings, *, env: Mapping[str, str]) -> ProcessSpec:
    """Return beat."""
    command = beat_command(log_level=settings.telemetry.log_level)
    return ProcessSpec("beat", tuple(command), env, environment_for("beat", os.environ, settings))


def console_spec(settings: Settings, *, port: int, url: str, api_url: str, api_key: str) -> ProcessSpec:
    """Return the web console. It gets the API's address and key, and nothing of the servers behind it."""
    env = {
        "NOVA_HOME": str(settings.home),
        "NOVA_API_URL": api_url,
        "NOVA_API_KEY": api_key,
        "NOVA_CONSOLE__PORT": str(port),
        "PYTHONUNBUFFERED": "1",
    }
    command = console_command(host=settings.console.host, port=port, log_level=settings.telemetry.log_level)
    return ProcessSpec(
        "console",
        tuple(command),
        env,
        environment_for("console", os.environ, settings),
        ready=_serves(f"{url}/healthz"),
        ready_timeout_s=_START_S,
        optional=True,
    )


def flower_spec(settings: Settings, *, host: str, port: int, url: str, env: Mapping[str, str]) -> ProcessSpec:
    """Return Flower. Its environment has the password, which a command line would show to every user."""
    return ProcessSpec(
        "flower",
        tuple(flower_command(host=host, port=port)),
        {**env, "NOVA_FLOWER__PASSWORD": flower_password(settings)},
        environment_for("flower", os.environ, settings),
        ready=_serves(f"{url}/healthcheck"),
        ready_timeout_s=_START_S,
        optional=True,
    )


def telegram_spec(settings: Settings, *, url: str, key: str) -> ProcessSpec | None:
    """Return the process of the Telegram channel; None if no bot is configured."""
    if settings.telegram.token is None and not settings.telegram.bots:
        return None
    command = (sys.executable, "-m", "nova_workers.channels", "telegram")
    env = {"NOVA_API_URL": url, "NOVA_API_KEY": key, "PYTHONUNBUFFERED": "1"}
    inherited = environment_for("channel", os.environ, settings)
    return ProcessSpec("telegram", command, env, inherited, optional=True)


def model_spec(*, host: str, port: int, url: str) -> ProcessSpec:
    """Return the local stand-in for the model provider."""
    app = (sys.executable, "-m", "uvicorn", LOCAL_MODEL_APP, "--factory")
    command = (*app, "--host", host, "--port", str(port), "--log-level", "warning")
    inherited = system_environment(os.environ)
    return ProcessSpec("model", command, inherited=inherited, ready=_serves(f"{url}/healthz"), ready_timeout_s=_START_S)


def _this_machine(host: str) -> tuple[str, ...]:
    """Return the addresses from which programs of this machine reach a server that listens on a host."""
    return _LOOPBACK if host in _ANY or host in _LOOPBACK else (*_LOOPBACK, host)


def _serves(url: str) -> Callable[[], Awaitable[bool]]:
    # Reading the certificates of all authorities takes 25 ms, and a process that starts is asked often.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    async def serves() -> bool:
        async with httpx2.AsyncClient(timeout=_PROBE_S, trust_env=False, verify=tls) as client:
            try:
                return (await client.get(url)).is_success
            except httpx2.HTTPError:
                return False

    return serves
