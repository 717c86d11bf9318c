import pytest

from nova_workers.base.config import load_settings, unknown_variables


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


@pytest.mark.parametrize("name", ["audio.transcription_api_key", "audio.transcription_url", "telegram.token"])
def test_what_a_deployment_leaves_empty_is_unset(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    section, field = name.split(".")
    monkeypatch.setenv(f"NOVA_{section}__{field}".upper(), "")
    assert getattr(getattr(load_settings(), section), field) is None
