import pytest

from nova_workers.base.config import load_settings, unknown_variables
from nova_workers.base.errors import ConfigurationError


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("NOVA_API__PROT", "did you mean NOVA_API__PORT?"),
        ("NOVA_API_PORT", "did you mean NOVA_API__PORT?"),
        ("NOVA_WORKER__CONCURENCY", "did you mean NOVA_WORKER__CONCURRENCY?"),
        ("NOVA_XQZ", "it has no effect."),
        ("nova_api__prot", "did you mean NOVA_API__PORT?"),
    ],
)
def test_an_unknown_variable_is_reported_with_the_nearest_setting(name: str, told: str) -> None:
    assert unknown_variables({name: "1"}) == [f"{name} is set, but is not a setting; {told}"]


@pytest.mark.parametrize(
    "name",
    [
        "NOVA_HOME",
        "NOVA_API",
        "NOVA_API__PORT",
        "NOVA_API_URL",
        "NOVA_API_KEY",
        "NOVA_MODEL__ALIASES__FAST",
        "NOVA_OPENAI__PROVIDERS__LOCAL__API_KEY",
        "NOVAE",
        "X",
    ],
)
def test_settings_and_the_variables_of_others_are_not_named(name: str) -> None:
    assert unknown_variables({name: "1"}) == []


@pytest.mark.parametrize(
    "address",
    [
        "nova.example.org",
        "ftp://nova.example.org",
        "https://",
        "https://nova.example.org/",
        "https://nova.example.org/nova",
        "https://nova.example.org?a=b",
        "https://name:word@nova.example.org",
        "https://nova.example.org:0",
        "https://nova.example.org:port",
        "https://nova example.org",
        "https://nova.example.org'; rm -r .; '",
        "https://$(id).example.org",
        "https://nova.example.org\n",
    ],
)
def test_a_public_address_is_scheme_host_and_port_alone(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for good in ("https://nova.example.org", "http://10.0.0.7:8700", "http://[::1]:8700"):
        monkeypatch.setenv("NOVA_API__PUBLIC_URL", good)
        assert load_settings().api.public_url == good
    monkeypatch.setenv("NOVA_API__PUBLIC_URL", address)
    with pytest.raises(ConfigurationError, match=r"NOVA_API__PUBLIC_URL: .*without a path"):
        load_settings()


@pytest.mark.parametrize(
    "name",
    [
        "api.public_url",
        "console.public_url",
        "audio.transcription_api_key",
        "audio.transcription_url",
        "telegram.token",
    ],
)
def test_what_a_deployment_leaves_empty_is_unset(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    section, field = name.split(".")
    monkeypatch.setenv(f"NOVA_{section}__{field}".upper(), "")
    assert getattr(getattr(load_settings(), section), field) is None
