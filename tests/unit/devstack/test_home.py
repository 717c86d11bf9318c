"""The home of a stack: its lock, its state file, its private files and sockets."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nova_workers.base.errors import ConfigurationError
from nova_workers.devstack.home import (
    AlreadyRunning,
    StackState,
    lock_home,
    read_state,
    remove_state,
    write_private,
    write_state,
)
from nova_workers.devstack.servers.sockets import socket_folder

STATE = StackState(
    pid=os.getpid(),
    started_at=datetime(2026, 1, 2, tzinfo=UTC),
    api_url="http://127.0.0.1:8700",
    flower_url="http://127.0.0.1:5555",
    metrics_urls=("http://127.0.0.1:8700/metrics",),
    database_url="postgresql://nova:secret@db/nova",
    redis_url="redis://redis/0",
    model="anthropic",
)


def test_a_home_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with lock_home(tmp_path):
        # Test workers are forked from the process that imports this module.
        write_state(tmp_path, STATE.model_copy(update={"pid": os.getpid()}))
        with (
            pytest.raises(AlreadyRunning, match=rf"pid {os.getpid()}\): API http://127.0.0.1:8700"),
            lock_home(tmp_path),
        ):
            pass
    with lock_home(tmp_path):
        pass


def test_while_the_owner_starts_the_error_has_no_address(tmp_path: Path) -> None:
    with lock_home(tmp_path):
        write_state(tmp_path, STATE.model_copy(update={"pid": 1}))  # of an earlier stack that was killed
        with pytest.raises(AlreadyRunning, match="still starting"), lock_home(tmp_path):
            pass


def test_a_home_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="NOVA_HOME is"), lock_home(tmp_path / "file" / "home"):
        pass


def test_the_state_round_trips_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    assert read_state(tmp_path) == STATE
    assert stat.S_IMODE((tmp_path / "nova.json").stat().st_mode) == 0o600
    remove_state(tmp_path)
    remove_state(tmp_path)
    assert read_state(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", json.dumps({"pid": 1}), "\x00"])
def test_a_damaged_state_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "nova.json").write_text(text)
    assert read_state(tmp_path) is None


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "api_key"
    path.write_text("old and readable by all")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_short_path_contains_its_socket(tmp_path: Path) -> None:
    data = Path("/short/data")
    assert socket_folder(data) == data


def test_a_deep_path_always_has_the_same_private_socket_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    deep = tmp_path / "/".join(["folder"] * 20)
    folder = socket_folder(deep)
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert socket_folder(deep) == folder
    assert socket_folder(deep / "other") != folder


def test_a_socket_folder_that_others_may_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    deep = tmp_path / "/".join(["folder"] * 20)
    socket_folder(deep).chmod(0o755)
    with pytest.raises(ConfigurationError, match="must be a private folder"):
        socket_folder(deep)
