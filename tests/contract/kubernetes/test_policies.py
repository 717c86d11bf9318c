"""What each rendered pod may do, what it is given, and how the platform starts and stops it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from nova_workers.base.config import Settings
from nova_workers.base.config.secret_variables import secret_settings
from nova_workers.base.config.settings import CLIENT_VARIABLES
from nova_workers.cli.app import app as cli
from tests.requirements import proves
from tests.support.data.charts import VALUE_SETS, needs_helm, rendered, rendered_text, secrets_of, workloads

_WITHOUT_PROBES = re.compile(r"nova-(?:beat|telegram|channel-\w+|migrate(?:-\d+)?)")
"""They serve nothing, and end when they cannot work."""
_SECRETS = {
    "api": {"nova-broker", "nova-ledger"},
    "worker": {"nova-broker", "nova-ledger", "nova-models"},
    "beat": {"nova-broker"},
    "console": {"nova-console"},
    "flower": {"nova-broker", "nova-flower"},
    "migrate": {"nova-ledger", "nova-owner"},
}
_RENAMED = {"redis": "nova-broker", "postgres": "nova-ledger", "postgres-owner": "nova-owner", "models": "nova-models"}
"""In the values `small`."""
_SERVERS = {"nova-postgres", "nova-valkey"}

pytestmark = [needs_helm, pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)]


def _containers(values: Path) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    return [
        (name, pod, container)
        for name, pod in workloads(rendered(values)).items()
        for container in (*pod.get("initContainers", ()), *pod["containers"])
    ]


def _variables(model: type[BaseModel], prefix: str) -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found.add(f"{prefix}{name.upper()}")
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= _variables(field.annotation, f"{prefix}{name.upper()}__")
    return found


@proves("security.containers")
def test_no_container_is_root_writes_its_image_or_gains_rights(values: Path) -> None:
    for name, pod, container in _containers(values):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"]["type"] in {"RuntimeDefault", "Localhost"}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume], name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name


def test_every_container_has_requests_and_a_limit_of_memory(values: Path) -> None:
    for name, _, container in _containers(values):
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}, name
        assert "memory" in container["resources"]["limits"], name


def test_every_container_that_serves_something_has_probes(values: Path) -> None:
    for name, pod, container in _containers(values):
        probes = container.keys() & {"startupProbe", "livenessProbe", "readinessProbe"}
        # Flower is reached by its pod only, so that nothing asks whether it is ready.
        wanted = {"startupProbe", "livenessProbe"} | ({"readinessProbe"} if name != "nova-flower" else set())
        assert probes == (set() if _WITHOUT_PROBES.fullmatch(name) else wanted), name
        ports = {port["name"] for port in container.get("ports", ())}
        asked = {probe["httpGet"]["port"] for probe in map(container.get, probes) if probe and "httpGet" in probe}
        assert asked <= ports, name
        assert pod["containers"], name


def test_the_platform_waits_longer_than_a_drain_takes(values: Path) -> None:
    for name, pod in workloads(rendered(values)).items():
        if name.startswith("nova-worker"):
            env = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
            deadline_s = float(env["NOVA_WORKER__DRAIN_DEADLINE_S"])
            assert float(env["NOVA_WORKER__DRAIN_GRACE_S"]) <= deadline_s
            assert pod["terminationGracePeriodSeconds"] > deadline_s


def test_every_variable_is_a_setting_and_the_settings_are_valid(values: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = set(re.findall(r"\bNOVA_[A-Z0-9_]+", rendered_text(values)))
    known = _variables(Settings, "NOVA_") | CLIENT_VARIABLES
    assert named <= known
    (shared,) = (one["data"] for one in rendered(values) if one["metadata"]["name"] == "nova-settings")
    for _, _, container in _containers(values):
        own = {entry["name"]: entry["value"] for entry in container.get("env", ()) if "value" in entry}
        with monkeypatch.context() as environment:
            for name, value in {**shared, **own}.items():
                if name in known:
                    environment.setenv(name, value)
            Settings()


def test_every_container_runs_a_command_that_parses(values: Path) -> None:
    nova: Any = typer.main.get_command(cli)
    for name, _, container in _containers(values):
        if name in _SERVERS:
            continue
        command, rest = nova, list(container["args"])
        context = command.context_class(command, info_name="nova")
        while hasattr(command, "resolve_command"):
            word, command, rest = command.resolve_command(context, rest)
            context = command.context_class(command, info_name=word, parent=context)
        # Refuses unknown options and missing arguments; runs nothing.
        command.make_context(name, rest, parent=context)


@proves("security.containers")
def test_each_container_gets_its_own_secrets_and_no_others(values: Path) -> None:
    secret = secret_settings()
    for name, _, container in _containers(values):
        plain = {entry["name"] for entry in container.get("env", ()) if "value" in entry}
        assert not plain & secret, name
        from_secrets = {_RENAMED.get(each, each) for each in secrets_of(container)}
        of = re.sub(r"^nova-|-\d+$", "", name)
        if of in _SECRETS:
            assert from_secrets == _SECRETS[of], name
        elif name.startswith("nova-worker-"):
            assert {"nova-broker", "nova-ledger"} < from_secrets, name
            assert len(from_secrets) == 3, name
        else:
            # A channel of its own, or a server of a trial.
            assert len(from_secrets) == 1, name
            assert not from_secrets & {"nova-broker", "nova-ledger", "nova-owner"}, name


def test_every_secret_that_is_read_has_the_variables_of_its_processes(values: Path) -> None:
    """Of a trial, whose secrets the chart makes."""
    made = {one["metadata"]["name"]: one["stringData"] for one in rendered(values) if one["kind"] == "Secret"}
    if values.stem != "trial":
        assert made == {}
        return
    assert {name: set(data) for name, data in made.items() if name != "nova-trial"} == {
        "nova-broker": {"NOVA_REDIS_URL"},
        "nova-ledger": {"NOVA_DATABASE_URL", "NOVA_SECRETS__KEYS"},
        "nova-owner": {"NOVA_DATABASE_OWNER_URL"},
        "nova-models": {"ANTHROPIC_API_KEY"},
        "nova-console": {"NOVA_CONSOLE__SECRET"},
        "nova-flower": {"NOVA_FLOWER__PASSWORD"},
    }
    every = {name: value for data in made.values() for name, value in data.items() if name.startswith("NOVA_")}
    settings = Settings.model_validate(
        {
            "database_url": every["NOVA_DATABASE_URL"],
            "redis_url": every["NOVA_REDIS_URL"],
            "secrets": {"keys": json.loads(every["NOVA_SECRETS__KEYS"])},
            "console": {"secret": every["NOVA_CONSOLE__SECRET"]},
            "flower": {"password": every["NOVA_FLOWER__PASSWORD"]},
        }
    )
    assert settings.secrets.keys
