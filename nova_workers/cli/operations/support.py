"""`nova support-bundle`: one file for those who help, with facts of the fleet and none of its content."""

import asyncio
import io
import json
import os
import platform
import re
import sys
import tarfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import asyncpg
import typer
from pydantic import BaseModel
from redis.asyncio import Redis

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import ConfigurationError, NovaError
from nova_workers.base.release import release
from nova_workers.cli.command import ApiKeyOption, ApiUrlOption
from nova_workers.cli.operations.doctor import examine
from nova_workers.cli.target import find_servers, find_target
from nova_workers.cli.terminal.output import JsonOption, Output
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import RunView

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_PART_S: Final = 60.0
_CONNECT_S: Final = 5
_FAILED_RUNS: Final = 100
_MOST_LOG_BYTES: Final = 20 << 20
"""The end of a log that is read, in bytes."""

_EVENT: Final = re.compile(r"[a-z_]+(\.[a-z_]+)*\Z")
"""Names of our events: what else a line has may be content."""

# In these Postgres has replaced literals by parameters; not in others, such as those that set a password. Sessions are
# shown without their statements.
_STATEMENTS: Final = r"""
SELECT calls, total_exec_time AS total_ms, mean_exec_time AS mean_ms, rows, query
  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
 WHERE d.datname = current_database() AND s.query ~* '^\s*(select|insert|update|delete|with)\M'
 ORDER BY total_exec_time DESC LIMIT 30
"""
_SESSIONS: Final = """
SELECT state, wait_event_type, wait_event, count(*) AS sessions,
       extract(epoch FROM max(now() - xact_start))::float AS longest_transaction_s
  FROM pg_stat_activity WHERE datname = current_database() GROUP BY 1, 2, 3 ORDER BY sessions DESC LIMIT 50
"""
_TABLES: Final = """
SELECT relname AS name, pg_total_relation_size(relid) AS bytes, n_live_tup AS live, n_dead_tup AS dead, last_autovacuum,
       last_autoanalyze FROM pg_stat_user_tables ORDER BY bytes DESC LIMIT 100
"""
_SERVER: Final = """
SELECT version() AS version, pg_database_size(current_database()) AS bytes, pg_is_in_recovery() AS is_standby,
       current_setting('max_connections') AS max_connections, current_setting('shared_buffers') AS shared_buffers,
       (SELECT version_num FROM alembic_version) AS schema
"""
_REDIS_SECTIONS: Final = ("server", "clients", "memory", "persistence", "stats", "replication", "keyspace")
_REDIS_HIDDEN: Final = frozenset({"executable", "config_file", "run_id", "master_host", "monotonic_clock"})

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
"""The name that a requirement begins with."""

_Part = Callable[[], Awaitable[Any]]


@app.command("support-bundle")
def support_bundle(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write. Default: nova-support-TIME.tar.gz here.")
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option("--log", metavar="FILE", help="A log with JSON lines, whose events are counted. May be repeated."),
    ] = None,
    *,
    json_mode: JsonOption = False,
    api_url: ApiUrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Write one file with facts for those who help: versions, health, queues, slow statements, failed runs.

    It has no message, no answer, no error text, no secret and no value of a setting that is a text. Look into it before
    you send it: it is JSON.
    """
    now = datetime.now(UTC)
    path = output or Path(f"nova-support-{now:%Y%m%d-%H%M%S}.tar.gz")
    if path.exists():
        raise ConfigurationError(f"{path} exists. Name another file with --output.")
    parts = asyncio.run(_collect(now, log or (), api_url=api_url, api_key=api_key))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            _write(file, parts, now)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}. Name another file with --output.") from error
    sizes = {name: len(text) for name, text in parts.items()}
    document = {"path": str(path), "parts": sizes}

    def show(out: Output, _: object) -> None:
        for name, size in sizes.items():
            out.stdout.write(f"  {name:<18} {size:>9,} bytes\n")
        out.stdout.write(f"{path}: facts without content. Look into it before you send it.\n")

    Output(json_mode=json_mode).write(document, show)


async def _collect(
    now: datetime, logs: Iterable[Path], *, api_url: str | None, api_key: str | None
) -> dict[str, bytes]:
    """Return the parts by their names. One that fails has the kind of its error, and harms no other."""
    settings = _settings()
    parts: dict[str, _Part] = {
        "about": lambda: _about(now),
        "settings": lambda: _settings_shown(settings),
        "doctor": lambda: _doctor(api_url, api_key),
        "fleet": lambda: _fleet(settings, api_url, api_key),
        "failed-runs": lambda: _failed_runs(settings, api_url, api_key),
        "postgres": lambda: _postgres(settings),
        "redis": lambda: _redis(settings),
        "log-events": lambda: _log_events(logs),
    }
    found = await asyncio.gather(*(_isolated(part) for part in parts.values()))
    return {
        f"{name}.json": json.dumps(value, indent=2, default=str).encode()
        for name, value in zip(parts, found, strict=True)
    }


async def _isolated(part: _Part) -> Any:
    try:
        async with asyncio.timeout(_PART_S):
            return await part()
    except Exception as error:
        # Its message may be content.
        code = error.code if isinstance(error, NovaError) else type(error).__name__
        return {"not_collected": code}


def _settings() -> Settings | None:
    try:
        return load_settings()
    except ConfigurationError:
        return None


async def _about(now: datetime) -> dict[str, Any]:
    return {
        "at": now.isoformat(),
        "nova_workers": release(),
        "python": sys.version,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": {name: _version(name) for name in _dependencies()},
    }


def _dependencies() -> list[str]:
    named = (_NAME.match(line) for line in requires("nova-workers") or ())
    return sorted({found[0] for found in named if found is not None})


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


async def _settings_shown(settings: Settings | None) -> dict[str, Any]:
    """Return the settings: values that are numbers, yes or no, or words of a list; of all others only whether set."""
    return {
        "variables": sorted(name for name in os.environ if name.startswith("NOVA_")),
        "values": None if settings is None else _shown(settings),
    }


def _shown(section: BaseModel) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            shown[name] = _shown(value)
        elif isinstance(value, bool | int | float | None) or value in _words(field.annotation):
            shown[name] = value
        else:
            shown[name] = "set" if value else "empty"
    return shown


def _words(annotation: object) -> tuple[object, ...]:
    """Return the words of the lists in an annotation."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return arguments
    return tuple(word for argument in arguments for word in _words(argument))


async def _doctor(api_url: str | None, api_key: str | None) -> list[dict[str, str]]:
    findings = await examine(api_url=api_url, api_key=api_key)
    return [{"name": finding.name, "state": finding.state} for finding in findings]


def _client(settings: Settings | None, api_url: str | None, api_key: str | None) -> NovaClient:
    return find_target((settings or load_settings()).home, api_url=api_url, api_key=api_key).client()


async def _fleet(settings: Settings | None, api_url: str | None, api_key: str | None) -> dict[str, Any]:
    async with _client(settings, api_url, api_key) as nova:
        view = await nova.fleet.view()
        queued = await nova.fleet.queued()
        workers = view.workers or []
        return {
            "runs": view.runs,
            "queues": [queue.model_dump(mode="json") for queue in view.queues],
            "redis_answers": view.redis_answers,
            "workers": [_numbers(worker) for worker in workers],
            "queued": [group.model_dump(mode="json") for group in queued.groups],
        }


def _numbers(value: BaseModel) -> dict[str, Any]:
    """Return the fields that are numbers, yes or no, or times."""
    return {name: each for name, each in value if isinstance(each, bool | int | float | datetime)}


async def _failed_runs(settings: Settings | None, api_url: str | None, api_key: str | None) -> list[dict[str, Any]]:
    async with _client(settings, api_url, api_key) as nova:
        page = await nova.runs.list(status=["failed"], limit=_FAILED_RUNS)
        return [_run(run) for run in page.items]


def _run(run: RunView) -> dict[str, Any]:
    facts = ("id", "thread_id", "agent_version", "queue", "source", "attempt", "losses", "suspect", "stop_reason")
    times = ("created_at", "started_at", "finished_at")
    return {
        **{name: getattr(run, name) for name in facts},
        **{name: getattr(run, name) for name in times},
        "limit_reached": run.limit_reached,
        "error": None if run.error is None else {"kind": run.error.kind, "retryable": run.error.retryable},
        "usage": None if run.usage is None else run.usage.model_dump(mode="json"),
    }


async def _postgres(settings: Settings | None) -> dict[str, Any]:
    url = find_servers(settings or load_settings()).database_url
    if url is None:
        return {"not_collected": "no_url"}
    connection = await asyncpg.connect(url, timeout=_CONNECT_S, statement_cache_size=0)
    try:
        return {
            "server": await _rows(connection, _SERVER),
            "sessions": await _rows(connection, _SESSIONS),
            "tables": await _rows(connection, _TABLES),
            "statements": await _rows(connection, _STATEMENTS),
        }
    finally:
        connection.terminate()


async def _rows(connection: asyncpg.Connection, query: str) -> list[dict[str, Any]] | dict[str, str]:
    try:
        return [dict(row) for row in await connection.fetch(query)]
    except asyncpg.PostgresError as error:
        # Such as an extension that is not installed.
        return {"not_collected": type(error).__name__}


async def _redis(settings: Settings | None) -> dict[str, Any]:
    url = find_servers(settings or load_settings()).redis_url
    if url is None:
        return {"not_collected": "no_url"}
    async with Redis.from_url(url, socket_connect_timeout=_CONNECT_S, socket_timeout=_CONNECT_S) as redis:
        shown: dict[str, Any] = {}
        for section in _REDIS_SECTIONS:
            info = await redis.info(section)
            shown[section] = {name: value for name, value in info.items() if name not in _REDIS_HIDDEN}
        return shown


async def _log_events(logs: Iterable[Path]) -> dict[str, Any]:
    return {path.name: await asyncio.to_thread(_events_of, path) for path in logs}


def _events_of(path: Path) -> list[dict[str, Any]]:
    """Return how often each warning and error is in a log of JSON lines, with its first and last time."""
    counted: dict[tuple[str, str], dict[str, Any]] = {}
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_LOG_BYTES))
        for line in file:
            found = _event_of(line)
            if found is not None:
                level, event, at = found
                entry = counted.setdefault((level, event), {"level": level, "event": event, "times": 0, "first": at})
                entry["times"] += 1
                entry["last"] = at
    return sorted(counted.values(), key=lambda entry: -entry["times"])


def _event_of(line: bytes) -> tuple[str, str, str] | None:
    try:
        parsed: object = json.loads(line)
    except ValueError:
        return None
    if not isinstance(parsed, Mapping):
        return None
    level, event, at = (str(parsed.get(name, "")) for name in ("level", "event", "timestamp"))
    if level not in {"warning", "error", "critical"} or _EVENT.match(event) is None:
        return None
    try:
        return level, event, datetime.fromisoformat(at).isoformat()
    except ValueError:
        return level, event, ""


def _write(file: io.BufferedWriter, parts: Mapping[str, bytes], now: datetime) -> None:
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in parts.items():
            entry = tarfile.TarInfo(f"nova-support/{name}")
            entry.size, entry.mtime, entry.mode = len(text), int(now.timestamp()), 0o600
            archive.addfile(entry, io.BytesIO(text))
