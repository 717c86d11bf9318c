import json
from pathlib import Path

import pytest

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.home import home_folder
from nova_workers.cli.target import find_servers, find_target
from tests.requirements import proves


def _home(path: Path, *, state: object | None = None, key: str | None = None) -> Settings:
    if state is not None:
        (path / "nova.json").write_text(json.dumps(state))
    if key is not None:
        (path / "api_key").write_text(key + "\n")
    return Settings(home=path)


def test_without_options_the_default_address_is_used(tmp_path: Path) -> None:
    target = find_target(_home(tmp_path).home, api_url=None, api_key=None)
    assert target.url == "http://127.0.0.1:8700"
    assert target.api_key is None
    assert "NOVA_API_KEY" in target.key_source


def test_the_files_of_nova_up_are_found(tmp_path: Path) -> None:
    settings = _home(tmp_path, state={"api_url": "http://127.0.0.1:9999/"}, key="nova_k")
    target = find_target(settings.home, api_url=None, api_key=None)
    assert (target.url, target.api_key) == ("http://127.0.0.1:9999", "nova_k")


def test_options_override_files(tmp_path: Path) -> None:
    settings = _home(tmp_path, state={"api_url": "http://127.0.0.1:9999"}, key="nova_k")
    target = find_target(settings.home, api_url="https://fleet.example/", api_key="nova_other")
    assert (target.url, target.api_key) == ("https://fleet.example", "nova_other")


def test_the_key_of_this_machine_is_never_sent_to_another(tmp_path: Path) -> None:
    target = find_target(_home(tmp_path, key="nova_k").home, api_url="https://fleet.example", api_key=None)
    assert target.api_key is None
    assert "--api-key" in target.key_source


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"])
@proves("security.loopback")
def test_the_key_of_this_machine_goes_to_its_loopback(tmp_path: Path, url: str) -> None:
    assert find_target(_home(tmp_path, key="nova_k").home, api_url=url, api_key=None).api_key == "nova_k"


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8700", "ftp://x", "http://", "http://x:notaport", "http://[::1", "nonsense"]
)
def test_an_unusable_url_is_refused_with_its_value(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match="expected http://host:port") as caught:
        find_target(_home(tmp_path).home, api_url=url, api_key=None)
    assert repr(url) in caught.value.message


def test_a_damaged_state_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "nova.json").write_text("{")
    with pytest.raises(ConfigurationError, match="Delete it"):
        find_target(tmp_path, api_url=None, api_key=None)


def test_processes_join_the_servers_of_nova_up_unless_others_are_given(tmp_path: Path) -> None:
    settings = _home(tmp_path, state={"database_url": "postgresql://up", "redis_url": "redis://up"})
    assert find_servers(settings).database_url == "postgresql://up"
    given = Settings.model_validate({"home": tmp_path, "database_url": "postgresql://given"})
    assert find_servers(given).database_url == "postgresql://given"
    assert find_servers(given).redis_url == "redis://up"


@pytest.mark.parametrize("variable", [None, "NOVA_HOME", "nova_home"])
def test_commands_find_the_home_where_the_settings_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    monkeypatch.delenv("NOVA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if variable is not None:
        monkeypatch.setenv(variable, str(tmp_path / "other"))
    assert home_folder() == Settings().home == tmp_path / ("other" if variable else ".nova")
