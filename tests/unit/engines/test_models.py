import pytest

from nova_workers.base.anthropic_models import ModelName, parse_model
from nova_workers.engines.models import ALIASES, known_models, newest_models, resolve_model


@pytest.mark.parametrize(
    ("model_id", "name"),
    [
        ("claude-opus-4-5-20251101", ModelName("opus", (4, 5), "20251101")),
        ("claude-opus-5", ModelName("opus", (5, 0))),
        ("claude-sonnet-4-20250514", ModelName("sonnet", (4, 0), "20250514")),
        ("claude-mythos-preview", None),
        ("claude-3-5-haiku-20241022", None),
        ("gpt-5", None),
        ("", None),
    ],
)
def test_an_id_says_family_version_and_date(model_id: str, name: ModelName | None) -> None:
    assert parse_model(model_id) == name


def test_the_newest_is_the_highest_version_and_not_the_highest_text() -> None:
    ids = ["claude-opus-4-9", "claude-opus-4-10", "claude-haiku-5", "claude-haiku-4-8", "claude-opus-preview"]
    assert newest_models(ids) == {"opus": "claude-opus-4-10", "haiku": "claude-haiku-5"}


def test_an_undated_id_goes_before_the_dated_ones_of_its_version() -> None:
    ids = ["claude-opus-4-5-20251101", "claude-opus-4-5", "claude-opus-4-5-20260101"]
    assert newest_models(ids) == {"opus": "claude-opus-4-5"}
    assert newest_models(reversed(ids)) == {"opus": "claude-opus-4-5"}


def test_each_alias_is_the_newest_model_of_its_family_in_the_sdk() -> None:
    newest = newest_models(known_models())
    for alias in ALIASES:
        assert resolve_model(alias) == newest[alias]
        assert resolve_model(alias).startswith(f"claude-{alias}-")
        assert resolve_model(alias) in known_models()


def test_an_override_takes_precedence_and_an_unknown_name_passes_through() -> None:
    assert resolve_model("opus", {"opus": "mine"}) == "mine"
    assert resolve_model("fast", {"fast": "claude-haiku-4-5"}) == "claude-haiku-4-5"
    assert resolve_model("claude-opus-4-5-20251101", {}) == "claude-opus-4-5-20251101"
    assert resolve_model("anything at all") == "anything at all"
