"""`nova support-bundle`: facts of the fleet, and nothing of its content."""

from __future__ import annotations

import json
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import proves
from tests.support.processes.command_line import Nova

pytestmark = pytest.mark.fleet

_CANARY = "canary-7f3e"
"""Planted wherever content or a secret can be. No part of the bundle may have it."""


def _parts(path: Path) -> dict[str, Any]:
    with tarfile.open(path) as archive:
        members = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {Path(name).name: json.loads(file.read()) for name, file in members.items() if file is not None}


@proves("support.no-content")
def test_a_bundle_has_facts_and_none_of_the_content_and_secrets_of_the_fleet(
    nova: Nova, script: Callable[..., str], tmp_path: Path
) -> None:
    create = ("agents", "create", "planted", "--name", f"{_CANARY} name", "--engine", "scripted")
    assert nova(*create, "--instructions", f"{_CANARY} instructions").code == 0
    error = {"message": f"{_CANARY} error", "kind": "model_error", "retryable": False}
    failed = nova("send", script({"say": f"{_CANARY} answer "}, {"error": error}), "--agent", "planted")
    assert failed.code != 0
    log = tmp_path / "worker.log"
    lines = [
        {"level": "error", "event": "effect.failed", "timestamp": "2026-01-31T12:00:00Z", "error": _CANARY},
        {"level": "error", "event": "effect.failed", "timestamp": "2026-01-31T12:00:05Z"},
        {"level": "error", "event": f"{_CANARY} event", "timestamp": "x"},
        {"level": "info", "event": "run.claimed", "timestamp": "2026-01-31T12:00:05Z"},
    ]
    log.write_text("\n".join([*(json.dumps(line) for line in lines), f"{_CANARY} no JSON"]))
    path = tmp_path / "bundle.tar.gz"
    planted = {"NOVA_MODEL__API_KEY": _CANARY, "NOVA_TELEGRAM__AGENT": _CANARY, "NOVA_CONSOLE__SECRET": _CANARY * 5}
    done = nova("support-bundle", "--output", str(path), "--log", str(log), "--json", **planted)
    assert done.code == 0, done.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    parts = _parts(path)
    assert _CANARY not in json.dumps(parts)
    assert _CANARY not in done.out
    assert {name: "not_collected" in part for name, part in parts.items()} == dict.fromkeys(parts, False)
    assert parts["settings.json"]["values"]["model"]["api_key"] == "set"
    assert parts["settings.json"]["values"]["worker"]["concurrency"] > 0
    assert "NOVA_CONSOLE__SECRET" in parts["settings.json"]["variables"]
    (run, *_) = parts["failed-runs.json"]
    assert run["error"] == {"kind": "model_error", "retryable": False}
    (event,) = parts["log-events.json"]["worker.log"]
    assert (event["event"], event["times"]) == ("effect.failed", 2)
    assert parts["postgres.json"]["server"][0]["schema"]
    assert parts["redis.json"]["memory"]["used_memory"] > 0
    assert {"database", "workers"} <= {finding["name"] for finding in parts["doctor.json"]}


@proves("support.no-content")
def test_a_part_that_cannot_be_collected_harms_no_other_and_no_file_is_overwritten(nova: Nova, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    away = {"NOVA_DATABASE_URL": f"postgresql://nova:{_CANARY}@127.0.0.1:9/none", "NOVA_API_URL": "http://127.0.0.1:9"}
    assert nova("support-bundle", "--output", str(path), **away).code == 0
    parts = _parts(path)
    assert _CANARY not in json.dumps(parts)
    assert {name for name, part in parts.items() if "not_collected" in part} == {
        "postgres.json",
        "fleet.json",
        "failed-runs.json",
    }
    again = nova("support-bundle", "--output", str(path))
    assert again.code != 0
    assert "--output" in again.err
