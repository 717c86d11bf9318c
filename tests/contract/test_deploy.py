"""What is in deploy/ can be read, names settings that exist, and gives a drain the time that it needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from nova_workers.base.config import Settings
from nova_workers.base.config.secret_variables import secret_settings
from nova_workers.base.config.settings import CLIENT_VARIABLES
from nova_workers.cli.app import COMMANDS
from tests.requirements import proves

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DEPLOYED_EXTRAS = ("fleet", "mcp", "console", "telegram", "ag-ui", "a2a")
FILES = sorted(
    path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc" and "node_modules" not in path.parts
)
YAML_FILES = [path for path in FILES if path.suffix == ".yaml" and "templates" not in path.parts]
PATCHES = [path for path in YAML_FILES if path.name.endswith("-patch.yaml")]
MANIFESTS = [
    path
    for path in YAML_FILES
    if "kubernetes" in path.parts and path.name != "kustomization.yaml" and path not in PATCHES
]


def _variables(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        yield variable
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _variables(field.annotation, f"{variable}__")


SETTINGS = set(_variables(Settings, "NOVA_"))


def _documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def _all_manifests() -> list[dict[str, Any]]:
    return [document for path in MANIFESTS for document in _documents(path)]


def _pods() -> list[tuple[str, dict[str, Any]]]:
    return [
        (manifest["metadata"]["name"], manifest["spec"]["template"]["spec"])
        for manifest in _all_manifests()
        if manifest["kind"] in ("Deployment", "Job")
    ]


def _workers_variables() -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in dict(_pods())["nova-worker"]["containers"][0]["env"]}


def test_every_yaml_file_can_be_read() -> None:
    assert [path for path in YAML_FILES if not _documents(path)] == []


def test_every_named_setting_exists() -> None:
    for path in FILES:
        named = set(re.findall(r"\bNOVA_[A-Z0-9_]+", path.read_text()))
        assert named <= SETTINGS | CLIENT_VARIABLES, path


def test_the_kustomization_lists_every_resource() -> None:
    for folder in ("agents", "base", "keda", "telegram"):
        (kustomization,) = _documents(DEPLOY / "kubernetes" / folder / "kustomization.yaml")
        files = {path.name for path in (DEPLOY / "kubernetes" / folder).iterdir()} - {"kustomization.yaml"}
        patches = {patch["path"] for patch in kustomization.get("patches", ())}
        assert {*kustomization["resources"], *patches} == files


@proves("agents.files.kept")
def test_files_of_agents_are_on_a_volume_that_all_workers_share() -> None:
    (compose,) = _documents(DEPLOY / "compose.yaml")
    root = compose["services"]["worker"]["environment"]["NOVA_TOOLS__WORKSPACE_ROOT"]
    assert compose["services"]["worker"]["volumes"] == [f"agents:{root}"]
    assert "agents" in compose["volumes"]
    # A new volume gets the owner of the image's folder.
    assert f"install -d -o 10001 -g 10001 -m 0700 {root}" in (DEPLOY / "Dockerfile").read_text()
    (patch,) = _documents(DEPLOY / "kubernetes" / "agents" / "worker-patch.yaml")
    (claim,) = _documents(DEPLOY / "kubernetes" / "agents" / "agents-volume.yaml")
    pod = patch["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    assert {"name": "NOVA_TOOLS__WORKSPACE_ROOT", "value": root} in container["env"]
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": root}]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


IMAGES = {"${FLEET_IMAGE:-nova-workers}", "${EMBEDDINGS_IMAGE:-nova-workers:embeddings}"}
"""Images of the fleet's processes in the compose file; the second has the model for embeddings."""


def test_every_container_runs_a_command_that_the_command_line_has() -> None:
    commands = {command.name for command in COMMANDS}
    compose = _documents(DEPLOY / "compose.yaml")[0]["services"]
    asked = {service["command"][0] for service in compose.values() if service.get("image") in IMAGES}
    asked |= {pod["containers"][0]["args"][0] for _, pod in _pods()}
    assert asked == {"migrate", "api", "worker", "beat", "console", "flower", "channels"}
    assert asked <= commands


SECRETS_OF = {
    "api": {"NOVA_DATABASE_URL", "NOVA_REDIS_URL", "NOVA_SECRETS__KEYS"},
    "worker": {"NOVA_DATABASE_URL", "NOVA_REDIS_URL", "NOVA_SECRETS__KEYS", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"},
    "beat": {"NOVA_REDIS_URL"},
    "flower": {"NOVA_REDIS_URL", "NOVA_FLOWER__PASSWORD"},
    "console": {"NOVA_CONSOLE__SECRET", "NOVA_OIDC__CLIENT_SECRET"},
    "telegram": {"NOVA_TELEGRAM__TOKEN", "NOVA_TELEGRAM__BOTS", "NOVA_AUDIO__TRANSCRIPTION_API_KEY"},
    "migrate": {"NOVA_DATABASE_URL", "NOVA_DATABASE_OWNER_URL"},
}
"""What each process uses. The servers have their own passwords."""


@proves("security.containers")
def test_each_container_gets_the_secrets_that_it_uses_and_no_others() -> None:
    known = secret_settings() | {"ANTHROPIC_API_KEY", "OPENAI_API_KEY"}
    compose = _documents(DEPLOY / "compose.yaml")[0]["services"]
    assert {
        name: known & service.get("environment", {}).keys()
        for name, service in compose.items()
        if service.get("image") in IMAGES
    } == SECRETS_OF
    secrets = {
        secret["metadata"]["name"]: secret["stringData"].keys()
        for secret in _documents(DEPLOY / "kubernetes" / "secrets.example.yaml")
    }
    found: dict[str, frozenset[str]] = {}
    for name, pod in _pods():
        (container,) = pod["containers"]
        sources = [source["secretRef"]["name"] for source in container.get("envFrom", ()) if "secretRef" in source]
        whole = {key for source in sources for key in secrets[source]}
        single = [entry for entry in container.get("env", ()) if "valueFrom" in entry]
        assert all(entry["name"] in secrets[entry["valueFrom"]["secretKeyRef"]["name"]] for entry in single)
        found[name.removeprefix("nova-")] = known & (whole | {entry["name"] for entry in single})
    # The manifests are of a chart whose values name no provider of single sign-on.
    assert found == {**SECRETS_OF, "console": {"NOVA_CONSOLE__SECRET"}}


@proves("security.containers")
def test_no_container_logs_the_first_key_and_every_server_has_a_password() -> None:
    compose = _documents(DEPLOY / "compose.yaml")[0]["services"]
    commands = [*(service.get("command") for service in compose.values()), *(p["containers"][0] for _, p in _pods())]
    assert "first-key" not in str(commands)
    valkey = compose["valkey"]
    assert "VALKEY_PASSWORD" in valkey["environment"]
    assert "requirepass" in str(valkey["command"])
    assert "--requirepass" not in str(valkey["command"]), "other processes can read a command line"
    assert ":${VALKEY_PASSWORD" in compose["worker"]["environment"]["NOVA_REDIS_URL"]


def test_the_telegram_channel_runs_only_where_it_is_asked_for() -> None:
    compose = _documents(DEPLOY / "compose.yaml")[0]["services"]
    assert {name for name, service in compose.items() if "profiles" in service} == {"telegram"}
    assert compose["telegram"]["profiles"] == ["telegram"]
    # The compose file is read whole, so that a fleet without a bot must not need its variables.
    assert not re.search(r"TELEGRAM\w*:?\?", (DEPLOY / "compose.yaml").read_text())
    (base,) = _documents(DEPLOY / "kubernetes" / "base" / "kustomization.yaml")
    assert not [name for name in base["resources"] if "telegram" in name]
    (component,) = _documents(DEPLOY / "kubernetes" / "telegram" / "kustomization.yaml")
    assert component["kind"] == "Component"
    port = Settings().telegram.webhook_port
    assert compose["telegram"]["ports"] == [f"127.0.0.1:${{TELEGRAM_PORT:-{port}}}:{port}"]
    (container,) = dict(_pods())["nova-telegram"]["containers"]
    assert container["ports"] == [{"name": "webhook", "containerPort": port}]


def test_the_telegram_channel_reaches_its_servers_and_is_given_their_settings() -> None:
    compose = _documents(DEPLOY / "compose.yaml")[0]["services"]["telegram"]["environment"].keys()
    (secret,) = (
        manifest["stringData"].keys()
        for manifest in _documents(DEPLOY / "kubernetes" / "secrets.example.yaml")
        if manifest["metadata"]["name"] == "nova-telegram"
    )
    servers = {"NOVA_AUDIO__TRANSCRIPTION_URL", "NOVA_AUDIO__TRANSCRIPTION_API_KEY"}
    assert servers <= secret
    assert servers | {"NOVA_AUDIO__TRANSCRIPTION_MODEL", "NOVA_TELEGRAM__BASE_URL"} <= compose
    (policy,) = (
        manifest
        for manifest in _documents(DEPLOY / "kubernetes" / "telegram" / "telegram.yaml")
        if manifest["kind"] == "NetworkPolicy"
    )
    ports = {rule["ports"][0]["port"] for rule in policy["spec"]["egress"]}
    (example,) = re.findall(
        r"http://transcription[.\w]*:(\d+)", (DEPLOY / "kubernetes/secrets.example.yaml").read_text()
    )
    assert ports == {8700, int(example), 443}


@proves("security.containers")
def test_no_pod_is_root_or_may_become_it() -> None:
    for name, pod in _pods():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name


def test_the_platform_waits_longer_than_a_drain_takes() -> None:
    deadline_s = Settings().worker.drain_deadline_s
    pods = dict(_pods())
    assert pods["nova-worker"]["terminationGracePeriodSeconds"] > deadline_s
    assert float(_workers_variables()["NOVA_WORKER__DRAIN_DEADLINE_S"]) == deadline_s
    compose = _documents(DEPLOY / "compose.yaml")[0]["services"]
    assert float(compose["worker"]["stop_grace_period"].removesuffix("s")) > deadline_s
    unit = (DEPLOY / "systemd" / "nova@.service").read_text()
    found = re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)
    assert found is not None
    assert float(found[1]) > deadline_s


def _second_worker() -> str:
    """Return the script by which docs/deploy/one-server.md makes the unit of a second worker."""
    page = (ROOT / "docs" / "deploy" / "one-server.md").read_text("utf-8")
    (script,) = re.findall(r"^sed '([^']+)'", page, re.MULTILINE)
    return script


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd, whose program checks units, is not here")
@pytest.mark.parametrize("script", ["", _second_worker()], ids=["process", "second-worker"])
def test_systemd_takes_the_unit(script: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "nova@.service").read_text()
    unit, changed = tmp_path / "nova@worker.service", text
    if script:
        sed = ["sed", script]
        changed = subprocess.run(sed, input=text, check=True, capture_output=True, text=True, timeout=60).stdout
        assert "ExecStart=/opt/nova/bin/nova worker\n" in changed
        assert "RuntimeDirectory=nova-worker-%i\n" in changed
    # The program is not installed here.
    unit.write_text(changed.replace("/opt/nova/bin/nova", "/bin/true"))
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    checked = subprocess.run(verify, check=False, capture_output=True, text=True, timeout=60)
    # It warns of what it does not know, and succeeds.
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@proves("security.sign-in")
def test_the_api_trusts_the_console_and_nothing_else_to_state_addresses() -> None:
    services = _documents(DEPLOY / "compose.yaml")[0]["services"]
    assert services["api"]["environment"]["NOVA_API__TRUSTED_PROXIES"].endswith(':-["console"]}')
    assert "console" in services
    (settings,) = _documents(DEPLOY / "kubernetes" / "base" / "settings.yaml")
    (name,) = json.loads(settings["data"]["NOVA_API__TRUSTED_PROXIES"])
    (service,) = (one for one in _all_manifests() if one["kind"] == "Service" and one["metadata"]["name"] == name)
    # Without an address of its own, its name resolves to those of the pods.
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"]["app.kubernetes.io/component"] == "console"


def test_autoscaling_starts_below_a_workers_slots() -> None:
    scaled = next(m for m in _all_manifests() if m["kind"] == "ScaledObject")
    target = int(scaled["spec"]["triggers"][0]["metadata"]["targetQueryValue"])
    assert target < int(_workers_variables()["NOVA_WORKER__CONCURRENCY"])


@proves("security.containers")
def test_the_image_is_made_from_the_hashed_lock_and_is_not_root() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert dockerfile.count("--require-hashes") == 3
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", dockerfile, re.MULTILINE)


@pytest.mark.parametrize("lock", sorted([*ROOT.glob("requirements*.txt"), *DEPLOY.glob("requirements*.txt")]))
@proves("security.packages")
def test_every_locked_package_has_hashes_and_no_index_is_named(lock: Path) -> None:
    text = lock.read_text()
    packages = re.findall(r"^[a-z0-9][^=\s]*==\S+.*$", text, re.MULTILINE)
    assert packages
    assert all(package.endswith("\\") for package in packages)
    assert "://" not in text
    assert not re.search(r"^\s*--(?!hash)", text, re.MULTILINE)


def test_the_locks_agree_and_contain_the_projects_dependencies() -> None:
    def versions(path: Path) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, version in re.findall(r"^([a-z0-9][\w.-]*)(?:\[.*\])?==(\S+)", path.read_text(), re.MULTILINE):
            found.setdefault(name, set()).add(version)
        return found

    development = versions(ROOT / "requirements-dev.txt")
    for lock in (ROOT / "requirements.txt", *DEPLOY.glob("requirements*.txt")):
        for name, found in versions(lock).items():
            assert found <= development[name], name
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, groups = asked["project"], asked["dependency-groups"]
    extras = project["optional-dependencies"]
    fleet = [*project["dependencies"], *(each for extra in DEPLOYED_EXTRAS for each in extras[extra])]
    runtime = [*fleet, *extras["embeddings"], *extras["local"]]
    for lock, requirements in (
        (ROOT / "requirements.txt", runtime),
        (DEPLOY / "requirements.txt", fleet),
        (DEPLOY / "requirements-embeddings.txt", [*fleet, *extras["embeddings"]]),
        (ROOT / "requirements-dev.txt", [*runtime, *groups["test"], *groups["check"], *groups["build"]]),
        (ROOT / "requirements-docs.txt", groups["docs"]),
        (ROOT / "requirements-uv.txt", groups["uv"]),
        (ROOT / "requirements-kubernetes.txt", groups["kubernetes"]),
    ):
        for requirement in requirements:
            name = re.split(r"[\[<>=!~; ]", requirement)[0]
            assert name == "nova-workers" or name in versions(lock), (
                f"{requirement!r} is not in {lock.name}: run `make lock`"
            )


def test_workers_metrics_are_reached_where_they_are_served() -> None:
    (settings,) = _documents(DEPLOY / "kubernetes" / "base" / "settings.yaml")
    deployments = {one["metadata"]["name"]: one for one in _all_manifests() if one["kind"] == "Deployment"}
    template = deployments["nova-worker"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    port = settings["data"]["NOVA_WORKER__METRICS_PORT"]
    assert settings["data"]["NOVA_WORKER__METRICS_HOST"] == "0.0.0.0"
    assert template["metadata"]["annotations"]["prometheus.io/port"] == port
    assert container["ports"] == [{"name": "metrics", "containerPort": int(port)}]


def test_the_job_of_the_containers_ends_well_and_says_why_where_it_is_not_root() -> None:
    as_other = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    # By stdin: another user may not be able to read this folder.
    script = (ROOT / ".ci" / "containers").read_text("utf-8")
    done = subprocess.run(
        [*as_other, "sh"], input=script, cwd="/", capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.partition(": ")[2].partition(": ")[0]) == (0, "skipped"), done.stderr


def test_the_job_of_the_containers_has_a_limit_of_its_own() -> None:
    lines = (ROOT / ".ci" / "containers").read_text("utf-8").splitlines()
    assert lines[-1] == "exec timeout --kill-after=60 900 make containers"
    assert "ended after 15 minutes" in (ROOT / "docs" / "images.md").read_text("utf-8")
