"""The settings and their defaults. `sections` has each part.

Read from environment variables with the prefix ``NOVA_``; a nested value has a double underscore, as in
``NOVA_WORKER__CONCURRENCY=200``. Lists and maps are JSON.
"""

import difflib
import json
import os
import types
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from nova_workers.base.config.console import ConsoleSettings
from nova_workers.base.config.delivery import DeliverySettings
from nova_workers.base.config.flower import FlowerSettings
from nova_workers.base.config.forms import Count, DatabaseUrl, Folder, HostNames, RedisUrl
from nova_workers.base.config.models import ClaudeAgentSettings, ModelSettings
from nova_workers.base.config.oidc import OidcSettings
from nova_workers.base.config.openai import OpenAISettings
from nova_workers.base.config.orchestration import OrchestrationSettings
from nova_workers.base.config.programs import VendorProgramSettings
from nova_workers.base.config.secrets import SecretSettings
from nova_workers.base.config.sections import (
    ApiSettings,
    AudioSettings,
    EffectSettings,
    PromptSettings,
    RetentionSettings,
    RunSettings,
    StreamSettings,
    TaskSettings,
    TelemetrySettings,
    Timezone,
    ToolSettings,
    TriggerSettings,
    WorkerSettings,
)
from nova_workers.base.config.telegram import TelegramSettings
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.home import default_home
from nova_workers.base.validation import problem_of
from nova_workers.base.vocabulary import DoorName, EngineName

_PREFIX = "NOVA_"

CLIENT_VARIABLES = frozenset({"NOVA_API_URL", "NOVA_API_KEY"})
"""Options of the command line that can be set as variables; no settings."""


class Settings(BaseSettings):
    """All settings of an operator, frozen at start."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="ignore",
        nested_model_default_partial_update=True,
    )

    environment: Literal["development", "production"] = "development"
    home: Folder = Field(default_factory=default_home)
    """Data of the embedded stack, its state file and the first API key."""
    database_url: DatabaseUrl = None
    """postgresql://user:password@host/database. `nova up` sets it for its children."""
    database_owner_url: DatabaseUrl = None
    """The owner of the tables, for `nova migrate` alone: then the user of `database_url` need not, and cannot, change
    tables. Unset: `database_url`."""
    database_pool: Count = 12
    redis_url: RedisUrl = None
    """redis://host:port/db or unix:///path?db=0. Give the fleet a database of its own: the names
    of Celery's remote control and events are those of every application."""
    default_model: str = "sonnet"
    default_engine: EngineName = "anthropic"
    timezone: Timezone = "UTC"
    """The zone of days in usage reports, and of triggers that name none. Agents get the time in their tenant's zone."""

    allowed_hosts: HostNames = ()
    """Names under which API, console and Flower are reached, such as ``nova.example.com`` or ``*.example.com``, beside
    those of loopback and addresses; ``*`` is any. Requests for others are refused: DNS rebinding."""

    doors: tuple[DoorName, ...] = ()
    """The protocols that the API speaks beside its own, such as ``openai``. None is imported without its name here."""

    api: ApiSettings = Field(default_factory=ApiSettings)
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)
    flower: FlowerSettings = Field(default_factory=FlowerSettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    runs: RunSettings = Field(default_factory=RunSettings)
    triggers: TriggerSettings = Field(default_factory=TriggerSettings)
    streams: StreamSettings = Field(default_factory=StreamSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    tasks: TaskSettings = Field(default_factory=TaskSettings)
    prompts: PromptSettings = Field(default_factory=PromptSettings)
    effects: EffectSettings = Field(default_factory=EffectSettings)
    delivery: DeliverySettings = Field(default_factory=DeliverySettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    tools: ToolSettings = Field(default_factory=ToolSettings)
    telegram: TelegramSettings = Field(default_factory=TelegramSettings)
    audio: AudioSettings = Field(default_factory=AudioSettings)
    secrets: SecretSettings = Field(default_factory=SecretSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    claude_agent: ClaudeAgentSettings = Field(default_factory=ClaudeAgentSettings)
    openai: OpenAISettings = Field(default_factory=OpenAISettings)
    codex: VendorProgramSettings = Field(default_factory=VendorProgramSettings)
    gemini: VendorProgramSettings = Field(default_factory=VendorProgramSettings)
    oidc: OidcSettings = Field(default_factory=OidcSettings)
    orchestration: OrchestrationSettings = Field(default_factory=OrchestrationSettings)

    @model_validator(mode="after")
    def _home_is_outside_the_workspace(self) -> Self:
        if self.home.resolve().is_relative_to(self.workspace_root.resolve()):
            raise ValueError(
                f"NOVA_TOOLS__WORKSPACE_ROOT {str(self.workspace_root)!r} contains NOVA_HOME {str(self.home)!r}, whose "
                "files no agent may open. Give the workspace a folder of its own, which may lie in NOVA_HOME."
            )
        return self

    @property
    def workspace_root(self) -> Path:
        """The folder of all agents' working directories."""
        return self.tools.workspace_root or self.home / "workspace"

    def agent_directory(self, tenant_id: str, name: str) -> Path:
        """Return the working directory of an agent, whose name is its first id. It may not exist yet."""
        return self.workspace_root / tenant_id / name

    def require_database_url(self) -> str:
        """Return the database URL, or say how to get one.

        Raises:
            ConfigurationError: None is set.
        """
        if self.database_url is None:
            raise ConfigurationError(
                "NOVA_DATABASE_URL is not set. Set it to postgresql://user:password@host/database, "
                "or run `nova up`, which starts an embedded Postgres and sets it."
            )
        return self.database_url.get_secret_value()

    def require_redis_url(self) -> str:
        """Return the Redis URL, or say how to get one.

        Raises:
            ConfigurationError: None is set.
        """
        if self.redis_url is None:
            raise ConfigurationError(
                "NOVA_REDIS_URL is not set. Set it to redis://host:6379/0, "
                "or run `nova up`, which starts an embedded Valkey and sets it."
            )
        return self.redis_url.get_secret_value()


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises:
        ConfigurationError: A variable has the wrong form; the message names each.
    """
    try:
        return Settings()
    except SettingsError as error:
        # It names the section only.
        names = ", ".join(_unreadable(os.environ)) or "A list or a map"
        raise ConfigurationError(
            f"The environment has settings that cannot be used: {names}: lists and maps are JSON, such as "
            '["a", "b"] and {"a": "b"}'
        ) from error
    except ValidationError as error:
        problems = "; ".join(
            f"NOVA_{'__'.join(str(part).upper() for part in item['loc'])}: {problem_of(item, Settings)}"
            for item in error.errors()
        )
        raise ConfigurationError(f"The environment has settings that cannot be used: {problems}") from error


def _unreadable(environ: Mapping[str, str]) -> list[str]:
    """Return the variables whose values are no JSON although their settings are lists, maps or sections."""
    of_json = {name for name, annotation in _fields(Settings, _PREFIX) if not _is_plain(annotation)}
    found: list[str] = []
    for name in sorted(environ):
        if name.upper() in of_json:
            try:
                json.loads(environ[name])
            except ValueError:
                found.append(name.upper())
    return found


def _is_plain(annotation: object) -> bool:
    """Return whether a setting is written as it is, and not as JSON."""
    kinds = get_args(annotation) or (annotation,)
    plain = get_origin(annotation) in (None, Literal, Union, types.UnionType, Annotated)
    return plain and not any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that looks like a setting but is none, with the nearest setting."""
    known = {*_names(Settings, _PREFIX), *CLIENT_VARIABLES}
    found: list[str] = []
    for name in sorted(environ):
        plain = name.upper()
        if not plain.startswith(_PREFIX) or plain in known or _is_item(plain, known - _SECTIONS):
            continue
        close = difflib.get_close_matches(plain, known, n=1, cutoff=0.8)
        hint = f"did you mean {close[0]}?" if close else "it has no effect."
        found.append(f"{name} is set, but is not a setting; {hint}")
    return found


def _is_item(name: str, maps: Collection[str]) -> bool:
    """Return whether a variable gives a part of a map, as NOVA_OPENAI__PROVIDERS__LOCAL__API_KEY does."""
    while name:
        name = name.rpartition("__")[0]
        if name in maps:
            return True
    return False


def _names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, _ in _fields(model, prefix):
        yield name


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, object]]:
    """Yield each setting and section: its variable and its type."""
    for name, field in model.model_fields.items():
        variable = prefix + name.upper()
        yield variable, field.annotation
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{variable}__")


_SECTIONS = frozenset(
    _PREFIX + name.upper()
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
)
