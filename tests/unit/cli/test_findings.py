"""A check of `nova doctor` that fails or hangs is a finding, and what INFO and the disks say is understood."""

import asyncio
import errno
import os
import resource
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

import pytest

from nova_workers.base.config import Settings
from nova_workers.base.errors import Unavailable
from nova_workers.base.observability.machine import Mount, Space, lost_with, mounts
from nova_workers.cli.operations import doctor, machine_checks
from nova_workers.cli.operations.checks import check_broker
from nova_workers.cli.operations.doctor import examine
from nova_workers.cli.operations.findings import Finding, isolated
from nova_workers.cli.operations.machine_checks import check_disks
from nova_workers.cli.operations.provider_checks import check_providers
from nova_workers.cli.operations.redis_health import check_info
from nova_workers.worker.machine_watch import MachineWatch
from tests.requirements import proves

_HEALTHY: Mapping[str, object] = {
    "redis_version": "7.2.4",
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "used_memory": 10,
    "maxmemory": 0,
    "role": "master",
    "loading": 0,
}


@proves("doctor.isolated")
async def test_a_check_that_raises_or_hangs_is_a_finding_with_its_place() -> None:
    async def broken() -> Sequence[Finding]:
        return [Finding("queues", "ok", str({}["x"]))]

    async def hangs() -> Sequence[Finding]:
        await asyncio.Event().wait()
        return []

    async def away() -> Sequence[Finding]:
        raise Unavailable("The database does not answer.")

    (failed,) = await isolated("queues", broken)
    assert (failed.name, failed.state) == ("queues", "fail")
    assert "KeyError: 'x'" in failed.detail
    assert "test_findings.py" in failed.detail
    assert ", broken)" in failed.detail
    (late,) = await isolated("disks", hangs, longest_s=0.01)
    assert late.detail == "not checked: no answer within 0.01 s"
    (unknown,) = await isolated("schema", away)
    assert unknown.detail == "not checked: The database does not answer."


@proves("doctor.isolated")
async def test_settings_that_cannot_be_read_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_WORKER__CONCURRENCY", "many")
    (found,) = [each for each in await examine(api_url=None, api_key=None) if each.state == "fail"]
    assert (found.name, "NOVA_WORKER__CONCURRENCY" in found.detail) == ("settings", True)


@proves("doctor.isolated")
async def test_a_check_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(_: object) -> object:
        raise RuntimeError("no statvfs here")

    monkeypatch.setenv("NOVA_HOME", str(tmp_path))
    monkeypatch.setattr(machine_checks, "space_of", broken)
    found = {each.name: each for each in await examine(api_url="http://127.0.0.1:9", api_key=None)}
    assert "no statvfs here" in found["disks"].detail
    assert "machine_checks.py" in found["disks"].detail
    assert {"database", "broker", "api"} <= set(found)


@proves("doctor.isolated")
@pytest.mark.parametrize("query", ["", "?db=one", "?unknown=1"])
async def test_a_broker_that_is_away_is_one_finding_and_no_defect(query: str) -> None:
    url = f"redis://127.0.0.1:9/0{query}"
    (broker,) = await check_broker(url)
    assert (broker.name, broker.state, "this check failed" in broker.detail) == ("broker", "fail", False)
    assert await check_providers(url, None, "anthropic") == []


@proves("doctor.isolated")
def test_a_disk_that_hangs_does_not_hold_up_the_end_of_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = threading.Event()

    def hang(_: Path) -> bool:
        return answers.wait(60)

    monkeypatch.setenv("NOVA_HOME", str(tmp_path))
    monkeypatch.setattr(machine_checks, "space_of", hang)
    monkeypatch.setattr(doctor, "_DISK_S", 0.05)
    found = asyncio.run(examine(api_url="http://127.0.0.1:9", api_key=None))
    assert [each.detail for each in found if each.name == "disks"] == ["not checked: no answer within 0.05 s"]
    assert not answers.is_set()
    answers.set()


@pytest.mark.parametrize(
    ("info", "name", "state"),
    [
        ({"aof_last_write_status": "err"}, "append-only file", "fail"),
        ({"aof_last_bgrewrite_status": "err"}, "append-only file", "warn"),
        ({"rdb_last_bgsave_status": "err"}, "snapshots", "fail"),
        ({"maxmemory": 11}, "memory of redis", "warn"),
        ({"maxmemory": 10}, "memory of redis", "fail"),
        ({"role": "slave"}, "broker writes", "fail"),
        ({"loading": 1}, "broker writes", "fail"),
    ],
)
def test_a_redis_that_cannot_store_or_take_writes_is_seen(info: Mapping[str, object], name: str, state: str) -> None:
    assert {each.name for each in check_info(_HEALTHY)} == {"broker", "eviction", "persistence"}
    (found,) = [each for each in check_info({**_HEALTHY, **info}) if each.name == name]
    assert (found.state, bool(found.fix)) == (state, True)


@pytest.mark.parametrize(
    ("space", "full"),
    [
        (Space(99_000_000, 10**12, None), True),
        (Space(101_000_000, 10**12, None), False),
        (Space(10**12, 10**13, 3), True),
        # A container's tmpfs of 64 MB.
        (Space(60_000_000, 64_000_000, 9_000), False),
        (Space(1_000_000, 64_000_000, 9_000), True),
    ],
)
def test_a_disk_is_full_before_its_last_byte(space: Space, full: bool) -> None:
    assert space.is_full is full


def test_a_full_disk_is_named_with_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(home=tmp_path)
    assert {each.state for each in check_disks(settings) if each.name != "files of agents"} == {"ok"}
    whole = os.statvfs(tmp_path)
    full = os.statvfs_result((*whole[:3], 1, 1, *whole[5:10]))
    monkeypatch.setattr(os, "statvfs", mock.Mock(return_value=full))
    found = {each.name: each for each in check_disks(settings)}
    assert [found[name].state for name in ("disk of data", "disk of agents", "temporary files")] == ["fail"] * 3
    assert "NOVA_TOOLS__WORKSPACE_ROOT" in found["disk of agents"].fix
    assert f"no room for files of agents in {str(tmp_path)!r}" in MachineWatch(tmp_path).look()


def test_a_disk_that_does_not_answer_is_not_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", mock.Mock(side_effect=OSError(errno.ESTALE, "Stale file handle")))
    found = MachineWatch(tmp_path).look()
    assert f"files of agents in {str(tmp_path)!r} cannot be looked at: Stale file handle" in found
    assert not any("no room" in warning for warning in found)


def test_a_disk_that_takes_no_file_is_found_by_writing_one(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        found = {each.name: each for each in check_disks(Settings(home=tmp_path))}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (found["disk of data"].state, "File too large" in found["disk of data"].detail) == ("fail", True)
    assert list(tmp_path.iterdir()) == []


_DISK = Mount("/", Path("/"), "overlay")


@proves("agents.files.kept")
@pytest.mark.parametrize(
    ("mounted", "end"),
    [
        ([_DISK], "the container"),
        ([_DISK, Mount("/", Path("/data"), "tmpfs")], "a restart"),
        ([_DISK, Mount("/var/lib/docker/volumes/agents/_data", Path("/data"), "ext4")], None),
        ([_DISK, Mount("/kubelet/pods/1/volumes/kubernetes.io~empty-dir/tmp", Path("/data"), "ext4")], "the pod"),
        ([_DISK, Mount("/", Path("/data"), "tmpfs"), Mount("/", Path("/data/agents"), "nfs4")], None),
    ],
)
def test_files_of_agents_that_end_with_a_container_are_seen(mounted: Sequence[Mount], end: str | None) -> None:
    found = lost_with(Path("/data/agents"), mounted, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert (found or "").startswith(end or "")
    assert (found is None) == (end is None)


def test_the_mounts_of_this_machine_are_read() -> None:
    assert any(mount.point == Path("/") for mount in mounts())
    assert any(mount.kind == "proc" for mount in mounts())
