"""A start that is refused names the setting and changes nothing, and the corrected one works.

The list of settings comes from their model: a new one needs a wrong value here that is refused, by its type or by hand,
or a reason why no value of it is wrong.
"""

import asyncio
import json
import os
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from unittest import mock

import pytest
from pydantic import BaseModel, SecretStr

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.devstack import preflight
from nova_workers.devstack.first_start import MASTER_KEYS_FILE, prepare_database
from nova_workers.devstack.home import lock_home
from nova_workers.devstack.preflight import check_start
from nova_workers.devstack.run import run_stack
from nova_workers.devstack.stack import StackOptions
from nova_workers.ledger.database import PostgresDatabase
from tests.requirements import proves
from tests.support.processes.command_line import Nova

_ANY_TEXT = {
    "a name that only a provider knows": {
        *("NOVA_DEFAULT_MODEL", "NOVA_MODEL__COMPACTION_MODEL", "NOVA_EFFECTS__EMBEDDING_MODEL", "NOVA_OPENAI__MODEL"),
        *("NOVA_CODEX__MODEL", "NOVA_GEMINI__MODEL", "NOVA_AUDIO__TRANSCRIPTION_MODEL", "NOVA_AUDIO__VOICE"),
    },
    "a key that only a provider knows": {
        *("NOVA_MODEL__API_KEY", "NOVA_EFFECTS__EMBEDDING_API_KEY", "NOVA_AUDIO__TRANSCRIPTION_API_KEY"),
        *("NOVA_CODEX__API_KEY", "NOVA_GEMINI__API_KEY"),
    },
    "of workers' machines; where it is not, their engine or capability is not": {
        *("NOVA_CLAUDE_AGENT__PROGRAM", "NOVA_CODEX__PROGRAM", "NOVA_GEMINI__PROGRAM", "NOVA_TOOLS__BROWSER_COMMAND"),
    },
    "names and a secret that only the provider of single sign-on knows": {
        *(
            "NOVA_OIDC__CLIENT_ID",
            "NOVA_OIDC__DEVICE_CLIENT_ID",
            "NOVA_OIDC__CLIENT_SECRET",
            "NOVA_OIDC__GROUPS_CLAIM",
            "NOVA_OIDC__NAME",
        ),
    },
    "a name in the database, or in traces": {"NOVA_TELEGRAM__AGENT", "NOVA_TELEMETRY__SERVICE_NAME"},
}
"""Why no text is wrong for these before a start."""

_WRONG_TEXT = {
    "NOVA_HOME": "/dev/null/home",
    "NOVA_WORKER__HEARTBEAT_DIR": "/dev/null/beats",
    "NOVA_TOOLS__WORKSPACE_ROOT": "/dev/null/agents",
    "NOVA_TOOLS__PROJECT_ROOT": "/dev/null/projects",
    "NOVA_TOOLS__COMMAND_CGROUP": "/dev/null/cgroup",
    "NOVA_DATABASE_URL": "mysql://nova:hidden@db/nova",
    "NOVA_DATABASE_OWNER_URL": "db/nova:hidden",
    "NOVA_REDIS_URL": "redis://:hidden@broker:port/0",
    "NOVA_API__HOST": "http://0.0.0.0",
    "NOVA_CONSOLE__HOST": "[::1]:80",
    "NOVA_TELEGRAM__WEBHOOK_HOST": "a b",
    "NOVA_WORKER__METRICS_HOST": "127.0.0.1/metrics",
    "NOVA_TELEGRAM__TOKEN": "hidden",
    "NOVA_CONSOLE__SECRET": "hidden",
    "NOVA_FLOWER__PASSWORD": "hidden",
    "NOVA_TIMEZONE": "Mars/Olympus",
    "NOVA_WORKER__POOL": "Not A Pool",
}
"""Of settings that are text. Every other text is an address of HTTP."""


def _settings(model: type[BaseModel] = Settings, prefix: str = "NOVA_") -> Iterator[tuple[str, object]]:
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _settings(field.annotation, f"{variable}__")
        elif not any(variable in variables for variables in _ANY_TEXT.values()):
            yield variable, field.annotation


def _plain(annotation: object) -> object:
    """Return the type of a setting without what is written around it."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _plain(next(each for each in get_args(annotation) if each is not type(None)))
    return annotation


def _wrong(variable: str, annotation: object) -> Sequence[str]:
    kind = _plain(annotation)
    if get_origin(kind) is Literal or kind is bool:
        return ["perhaps"]
    if kind is int or kind is float:
        return ["many", "inf"]
    if get_origin(kind) is tuple or get_origin(kind) is dict:
        return ["a, b", json.dumps([[[]]]), json.dumps({"a b": {"c d": {"e f": []}}})]
    return [_WRONG_TEXT.get(variable, "htp:/nowhere")]


@proves("start.refused")
def test_every_wrong_value_is_refused_with_the_name_of_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, annotation in _settings():
        for wrong in _wrong(variable, annotation):
            monkeypatch.setenv(variable, wrong)
            with pytest.raises(ConfigurationError) as refused:
                load_settings()
            assert variable in refused.value.message, (variable, wrong)
            assert "hidden" not in refused.value.message
        monkeypatch.delenv(variable)
    load_settings()


@proves("start.refused")
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"NOVA_RUNS__LEASE_TTL_S": "12"}, "NOVA_RUNS__LEASE_RENEW_S"),
        ({"NOVA_WORKER__DRAIN_GRACE_S": "60"}, "NOVA_WORKER__DRAIN_DEADLINE_S"),
        ({"NOVA_API": "loopback"}, "NOVA_API"),
        ({"NOVA_MODEL__BASE_URL": "https://"}, "NOVA_MODEL__BASE_URL"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    given: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=named):
        load_settings()


@proves("start.refused")
@pytest.mark.parametrize("command", ["up", "api", "worker", "beat", "console", "flower", "migrate"])
def test_no_command_starts_or_makes_anything_with_a_wrong_setting(command: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with mock.patch.object(os, "execvpe") as started:
        done = Nova({"NOVA_HOME": str(home)})(command, NOVA_API__CORS_ORIGINS="any")
    assert (done.code, started.called, home.exists()) == (1, False, False)
    assert done.err.startswith("nova: The environment has settings that cannot be used: NOVA_API__CORS_ORIGINS: ")


class _Said:
    def __init__(self) -> None:
        self.text = ""

    def lines(self, name: str, texts: Sequence[str]) -> None:
        self.say(f"{name}: {texts}")

    def say(self, text: str, *, alarm: bool = False) -> None:
        self.text += text + "\n"


def _up(settings: Settings) -> str:
    said = _Said()
    assert run_stack(settings, StackOptions(port=0), said) == 1
    return said.text


async def _content(url: str) -> tuple[object, object]:
    """Return what a start would change in a database: its schema's version, and its keys."""
    database = PostgresDatabase(url, pool_size=1)
    try:
        made = await database.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL")
        keys = await database.fetch("SELECT id FROM api_keys ORDER BY id") if made else None
        return made, keys
    finally:
        await database.close()


_AWAY = SecretStr("postgresql://nova:hidden@127.0.0.1:9/none")


_WRONG_STARTS: Sequence[tuple[dict[str, Any], str]] = (
    ({"redis_url": SecretStr("redis://:hidden@127.0.0.1:9/0")}, "NOVA_REDIS_URL"),
    ({"redis_url": SecretStr("unix:///run/redis?password=hidden&db=one")}, "NOVA_REDIS_URL"),
    ({"redis_url": SecretStr("redis://:hidden@127.0.0.1:9/0?unknown=1")}, "NOVA_REDIS_URL"),
    ({"database_url": _AWAY}, "NOVA_DATABASE_URL"),
    ({"database_owner_url": _AWAY}, "NOVA_DATABASE_OWNER_URL"),
    ({"api": {"host": "192.0.2.1"}}, "NOVA_API__HOST"),
    ({"console": {"host": "192.0.2.1"}}, "NOVA_CONSOLE__HOST"),
    ({"telegram": {"token": SecretStr("1:hidden")}}, "NOVA_TELEGRAM__TOKEN"),
)


@proves("start.refused")
@pytest.mark.parametrize("is_used", [False, True])
def test_a_refused_start_of_the_stack_changes_nothing(
    is_used: bool,
    empty_url: str,
    database_url: str,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, url = tmp_path / "home", database_url if is_used else empty_url
    right = Settings(home=home, database_url=SecretStr(url), redis_url=SecretStr(redis_url))
    if is_used:
        asyncio.run(prepare_database(right.model_copy(update={"home": tmp_path}), url))
    before = asyncio.run(_content(url))
    assert (before == (False, None)) != is_used
    for change, named in _WRONG_STARTS:
        parts = {
            name: getattr(right, name).model_copy(update=value) if isinstance(value, dict) else value
            for name, value in change.items()
        }
        with monkeypatch.context() as without:
            if "telegram" in change:
                without.setattr(preflight, "find_spec", mock.Mock(return_value=None))
            said = _up(right.model_copy(update=parts))
        assert named in said
        assert "hidden" not in said
        assert not home.exists(), named
        assert asyncio.run(_content(url)) == before, named
    asyncio.run(check_start(right))


def test_a_damaged_file_of_master_keys_is_found_before_the_start(tmp_path: Path) -> None:
    (tmp_path / MASTER_KEYS_FILE).write_text("old:notbase64\n")
    with pytest.raises(ConfigurationError, match="NOVA_SECRETS__KEYS"):
        asyncio.run(check_start(Settings(home=tmp_path)))
    assert (tmp_path / MASTER_KEYS_FILE).read_text() == "old:notbase64\n"


def test_a_home_that_was_used_is_kept_by_a_refused_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with lock_home(home):
        (home / "api_key").touch()
    assert {path.name for path in home.iterdir()} == {"api_key", "nova.lock"}
