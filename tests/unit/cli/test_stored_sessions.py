"""Files of `nova login`: where they are, who may read them, and which key a command takes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from nova_workers.base.errors import ConfigurationError
from nova_workers.cli.stored_sessions import StoredSession, forget_session, read_session, session_file, write_session
from nova_workers.cli.target import find_target

_URL = "https://fleet.example"


def _session(url: str = _URL, key: str = "nova_session") -> StoredSession:
    return StoredSession(
        api_url=url,
        api_key=key,
        session_id="sgn_1",
        name="ann@example.org",
        tenant_id="ten_1",
        expires_at=datetime(2030, 1, 1, tzinfo=UTC),
    )


@pytest.fixture(autouse=True)
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_a_session_is_stored_for_its_api_and_its_owner_alone() -> None:
    path = write_session(_session())
    write_session(_session("http://127.0.0.1:8700", "nova_other"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert read_session(_URL) == _session()
    assert read_session("https://fleet.example:8443") is None
    write_session(_session(key="nova_later"))
    found = read_session(_URL)
    assert found is not None
    assert found.api_key == "nova_later"
    assert len(list(path.parent.iterdir())) == 2
    forget_session(_URL)
    forget_session(_URL)
    assert read_session(_URL) is None


def test_a_file_that_others_can_read_or_that_is_damaged_is_refused_with_what_to_do() -> None:
    path = write_session(_session())
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="other users"):
        read_session(_URL)
    path.chmod(0o600)
    path.write_text("{")
    with pytest.raises(ConfigurationError, match=r"damaged.*nova login"):
        read_session(_URL)


def test_without_a_folder_for_configuration_there_are_no_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "relative")
    assert session_file(_URL) is None
    assert read_session(_URL) is None
    with pytest.raises(ConfigurationError, match="XDG_CONFIG_HOME"):
        write_session(_session())


def test_a_given_key_comes_before_the_session_and_the_session_before_the_key_file(tmp_path: Path) -> None:
    local = "http://127.0.0.1:8700"
    (tmp_path / "api_key").write_text("nova_first\n")
    write_session(_session(local))
    assert find_target(tmp_path, api_url=None, api_key="nova_given").api_key == "nova_given"
    target = find_target(tmp_path, api_url=None, api_key=None)
    assert (target.api_key, target.session_id) == ("nova_session", "sgn_1")
    assert "ann@example.org" in target.key_source
    # A console or a channel would end with the person's session.
    assert find_target(tmp_path, api_url=None, api_key=None, with_session=False).api_key == "nova_first"
    # The session is of one API, and no other gets its key.
    assert find_target(tmp_path, api_url=_URL, api_key=None).api_key is None
