"""Each process gets the secrets that it uses, and no others."""

import json

import pytest
from pydantic import SecretStr

from nova_workers.base.config import Settings
from nova_workers.base.config.secret_variables import secret_settings
from nova_workers.devstack.environments import FleetProcessKind, environment_for, system_environment

SECRETS = {
    "NOVA_DATABASE_URL": "postgresql://nova:hidden-database@db/nova",
    "NOVA_REDIS_URL": "redis://:hidden-redis@broker/0",
    "NOVA_SECRETS__KEYS": '["one:hidden-master"]',
    "NOVA_MODEL__API_KEY": "hidden-model",
    "NOVA_OPENAI__PROVIDERS__LOCAL__API_KEY": "hidden-provider",
    "NOVA_EFFECTS__EMBEDDING_API_KEY": "hidden-embedding",
    "NOVA_TELEGRAM__TOKEN": "hidden-telegram",
    "NOVA_CONSOLE__SECRET": "hidden-console-0123456789-0123456789",
    "NOVA_FLOWER__PASSWORD": "hidden-flower",
    "NOVA_API_KEY": "hidden-key",
    "ANTHROPIC_API_KEY": "hidden-anthropic",
    "GITHUB_TOKEN": "hidden-github",
}
PLAIN = {"PATH": "/bin", "LC_ALL": "C", "NOVA_HOME": "/home/nova/.nova", "NOVA_TELEMETRY__LOG_LEVEL": "debug"}
SETTINGS = Settings.model_validate(
    {
        "model": {"api_key": "hidden-model"},
        "openai": {"providers": {"local": {"api_key": "hidden-provider", "base_url": "http://127.0.0.1:1/v1"}}},
    }
)
USED: dict[FleetProcessKind, set[str]] = {
    "api": {"database", "redis", "master", "embedding"},
    "worker": {"database", "redis", "master", "model", "provider", "embedding", "anthropic", "github"},
    "beat": {"redis"},
    "flower": {"redis", "flower"},
    "console": {"console", "key"},
    "channel": {"telegram", "key"},
}


@pytest.mark.parametrize("kind", USED)
def test_a_process_gets_the_secrets_that_it_uses_and_no_others(kind: FleetProcessKind) -> None:
    found = environment_for(kind, {**SECRETS, **PLAIN}, SETTINGS)
    text = json.dumps(found)
    names = {value.rpartition("hidden-")[2].split("@")[0].split('"')[0].split("-0")[0] for value in SECRETS.values()}
    assert {name for name in names if f"hidden-{name}" in text} == USED[kind]
    assert found["PATH"] == "/bin"
    assert found["NOVA_TELEMETRY__LOG_LEVEL"] == "debug"


def test_the_api_gets_the_names_of_providers_without_their_keys() -> None:
    found = environment_for("api", {**SECRETS, **PLAIN}, SETTINGS)
    assert found["ANTHROPIC_API_KEY"] == found["NOVA_MODEL__API_KEY"] == "**********"
    assert json.loads(found["NOVA_OPENAI__PROVIDERS"])["local"]["base_url"] == "http://127.0.0.1:1/v1"
    Settings.model_validate({"openai": {"providers": json.loads(found["NOVA_OPENAI__PROVIDERS"])}})


def test_a_server_gets_the_systems_variables_only() -> None:
    assert system_environment({**SECRETS, **PLAIN}) == {"PATH": "/bin", "LC_ALL": "C"}


def test_every_secret_setting_is_known_by_its_type() -> None:
    named = {name for name in SECRETS if name.startswith("NOVA_") and name != "NOVA_API_KEY"}
    named = {name.replace("__PROVIDERS__LOCAL__API_KEY", "__PROVIDERS") for name in named}
    assert named <= secret_settings()
    assert {"NOVA_MODEL__PROFILES", "NOVA_TELEGRAM__BOTS", "NOVA_CODEX__API_KEY"} <= secret_settings()
    assert "NOVA_API__PORT" not in secret_settings()
    assert isinstance(Settings.model_validate({"redis_url": "redis://x"}).redis_url, SecretStr)
