"""What is known of models, and which one is chosen."""

from __future__ import annotations

from random import Random
from typing import get_args

import pytest
from anthropic.types import Model
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.config import Settings
from nova_workers.base.errors import InvalidInput, ModelNotAvailableError, ProviderNotAvailableError
from nova_workers.base.vocabulary import COMPLEXITIES, MODEL_TIERS, TASK_CATEGORIES, TaskCategory
from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from nova_workers.domain.orchestrations.rules.config.values import BUILT_IN_PROVIDERS, ProviderConfig
from nova_workers.domain.orchestrations.rules.models.availability import (
    FleetAvailability,
    fleet_availability,
    unavailable_providers,
)
from nova_workers.domain.orchestrations.rules.models.capability import (
    ModelCapability,
    classify,
    infer_capability,
    infer_tier,
    required_tier,
    tier_rank,
)
from nova_workers.domain.orchestrations.rules.models.choice import ModelSelector
from nova_workers.domain.orchestrations.rules.models.registry import (
    ModelRegistry,
    installed,
    is_chat_model,
    known_models,
    sdk_models,
)
from nova_workers.engines.models import ALIASES, resolve_model
from nova_workers.engines.models import known_models as models_of_the_sdk
from tests.requirements import proves


def registry(text: str = "") -> ModelRegistry:
    return ModelRegistry.of(parse_config(text, known=known_models()))


@pytest.mark.parametrize(
    ("model_id", "tier"),
    [
        ("claude-opus-5-5", "frontier"),
        ("claude-sonnet-5", "strong"),
        ("claude-haiku-4-5-20251001", "fast"),
        ("gpt-5.4-nano", "economy"),
        ("gpt-5.1-codex-mini", "fast"),
        ("gpt-6-astra", "frontier"),
        ("gemini-3.5-flash-lite", "economy"),
        ("gemini-3.8-flash", "fast"),
        ("gemini-3.1-pro-preview", "frontier"),
        ("MiniMax-M2.7", "strong"),
        ("MiniMax-M2.7-highspeed", "fast"),
        ("qwen3-max", "frontier"),
        ("qwen3-8b", "economy"),
        ("something-new", "strong"),
    ],
)
def test_an_id_suggests_a_tier(model_id: str, tier: str) -> None:
    assert infer_tier(model_id) == tier


def test_the_ids_of_the_sdk_are_read_without_importing_it() -> None:
    listed = {each for part in get_args(Model) for each in get_args(part)}
    assert set(sdk_models()) == set(models_of_the_sdk()) == listed


def test_families_are_names_of_the_models_that_the_engine_takes_for_them() -> None:
    known = known_models()
    assert [known[alias].model_id for alias in ALIASES] == [resolve_model(alias) for alias in ALIASES]
    assert known_models({"sonnet": "mine"})["sonnet"].model_id == "mine"


def test_every_installed_model_converses_and_has_every_score() -> None:
    models = installed()
    assert {model.provider for model in models} == {"claude", "codex", "gemini", "minimax"}
    assert len(models) > 30
    for model in models:
        assert is_chat_model(model.model_id)
        assert set(model.affinities) == set(TASK_CATEGORIES)
        assert all(0 <= score <= 1 for score in model.affinities.values())
        assert model.cost_factor > 0


def test_a_configuration_overrides_what_is_known() -> None:
    found = registry(
        """
models:
  mine: {provider: alibaba, model_id: qwen3-max}
model_registry:
  claude-haiku-5-5: {affinities: {coding: 0.99}, cost_factor: 0.2}
  qwen3-max: {tier: economy, max_context_window: 64000}
  other: {provider: gemini, enabled: false}
"""
    )
    haiku, qwen, other = found.get("claude-haiku-5-5"), found.get("qwen3-max"), found.get("other")
    assert haiku is not None
    assert qwen is not None
    assert other is not None
    assert (haiku.affinity("coding"), haiku.cost_factor, haiku.tier) == (0.99, 0.2, "fast")
    assert haiku.affinity("planning") == infer_capability("claude-haiku-5-5", "claude").affinity("planning")
    assert (qwen.tier, qwen.cost_factor, qwen.max_context_window) == ("economy", 0.1, 64_000)
    assert (other.enabled, other.provider) == (False, "gemini")


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Design the architecture of a scalable billing service", "architecture"),
        ("Fix the bug in the login function and add a unit test", "coding"),
        ("Review this pull request for vulnerabilities", "code-review"),
        ("Plan the roadmap with milestones", "planning"),
        ("Write the README and document the API", "documentation"),
        ("Search the web and find sources", "search"),
        ("Explore the repository and inspect how it works", "exploration"),
        ("Rename a file", "simple-tasks"),
        ("Prove the theorem", "complex-reasoning"),
        ("Coordinate agents in an autonomous workflow", "agentic"),
        ("Run the shell command with the tool", "tool-use"),
        ("Hello there", "general"),
        ("", "general"),
    ],
)
def test_the_words_of_a_task_say_which_kind_of_work_it_is(text: str, category: str) -> None:
    assert classify(text).category == category


def test_complexity_is_a_level_or_a_tier() -> None:
    assert [required_tier(word) for word in COMPLEXITIES] == list(MODEL_TIERS)
    assert [required_tier(word.upper()) for word in MODEL_TIERS] == list(MODEL_TIERS)
    with pytest.raises(InvalidInput, match="'hard'"):
        required_tier("hard")


def test_the_lowest_tier_that_suffices_is_taken_and_its_best_model() -> None:
    chooser = ModelSelector(registry(), {"gemini": "no key", "minimax": "no key"})
    assert chooser.choose("simple-tasks", "simple").tier == "economy"
    assert chooser.choose("architecture").tier == "frontier"
    only_claude = ModelSelector(registry(), dict.fromkeys(("codex", "gemini", "minimax", "alibaba"), "no key"))
    assert only_claude.choose("simple-tasks", "simple").model_id == "claude-haiku-5-5"
    assert only_claude.choose("coding", "complex").model_id == "claude-sonnet-5-5"
    assert only_claude.choose("planning", "FRONTIER").model_id == "claude-opus-5-5"


def test_of_models_with_one_score_the_newest_generation_is_taken_whatever_it_costs() -> None:
    found = registry(
        """
models:
  old: {provider: gemini, model_id: gemini-8.5-pro}
  new: {provider: gemini, model_id: gemini-9-pro}
  other: {provider: codex, model_id: gpt-99}
model_registry:
  gemini-8.5-pro: {tier: frontier, cost_factor: 0.1, affinities: {coding: 0.999}}
  gemini-9-pro: {tier: frontier, cost_factor: 5, affinities: {coding: 0.999}}
  gpt-99: {tier: frontier, cost_factor: 9, affinities: {coding: 0.999}}
"""
    )
    assert ModelSelector(found).choose("coding", "frontier").model_id == "gemini-9-pro", "Of two providers the cheaper."


def test_a_recommendation_says_why() -> None:
    found = ModelSelector(registry()).recommend("Review the pull request")
    assert (found.category, found.tier, found.words) == ("code-review", "strong", ("review", "pull request"))
    assert len(found.alternatives) == 3
    assert found.model not in found.alternatives


@proves("orchestration.model-fits")
def test_a_model_that_does_not_fit_is_refused() -> None:
    chooser = ModelSelector(registry(), {"gemini": "no key"}, peer_models={"claude-haiku-5-5", "gemini-3.8-flash"})
    assert chooser.check("claude-haiku-5-5", "medium").tier == "fast"
    with pytest.raises(ModelNotAvailableError, match="takes frontier or above"):
        chooser.check("claude-haiku-5-5", "expert")
    with pytest.raises(ModelNotAvailableError, match="may not have"):
        chooser.check("claude-opus-5-5")
    with pytest.raises(ModelNotAvailableError, match="There is no model 'x'"):
        chooser.check("x")
    with pytest.raises(ProviderNotAvailableError, match="no key"):
        chooser.check("gemini-3.8-flash")
    with pytest.raises(ModelNotAvailableError, match="no model of the tier strong"):
        chooser.choose("coding")


def test_a_master_falls_back_to_a_model_of_the_same_tier() -> None:
    chooser = ModelSelector(registry(), {"claude": "no key"}, peer_models={"gpt-5-nano"})
    assert chooser.for_master("gpt-6-astra").model_id == "gpt-6-astra"
    fallback = chooser.for_master("claude-opus-5-5")
    assert (fallback.tier, fallback.provider != "claude") == ("frontier", True)
    with pytest.raises(ModelNotAvailableError, match="of the tier frontier"):
        ModelSelector(registry(), dict.fromkeys(BUILT_IN_PROVIDERS, "no key")).for_master("claude-opus-4-5")


def test_a_provider_needs_its_engine_and_its_profile() -> None:
    availability = FleetAvailability({"anthropic", "openai"}, {"openai": {"openai"}})
    providers = {**BUILT_IN_PROVIDERS, "off": ProviderConfig(engine="anthropic", enabled=False)}
    assert set(unavailable_providers(providers, availability)) == {"gemini", "minimax", "alibaba", "off"}
    assert set(unavailable_providers(providers, FleetAvailability({"anthropic"}))) == set(providers) - {"claude"}


MODELS = [
    infer_capability(f"{provider}-{tier}-{number}", provider, tier)
    for provider in ("claude", "codex", "gemini")
    for tier in MODEL_TIERS
    for number in (1, 2)
]
IDS = st.sampled_from([model.model_id for model in MODELS])


@given(
    st.sets(IDS, max_size=6),
    st.sets(st.sampled_from(["claude", "codex", "gemini"])),
    st.sampled_from(TASK_CATEGORIES),
    st.sampled_from([None, *COMPLEXITIES, *MODEL_TIERS]),
    st.dictionaries(IDS, st.floats(0, 1)),
    st.randoms(use_true_random=False),
)
def test_the_choice_is_permitted_available_sufficient_and_always_the_same(
    peers: set[str],
    unavailable: set[str],
    category: TaskCategory,
    complexity: str | None,
    learned: dict[str, float],
    random: Random,
) -> None:
    def score(model: ModelCapability, kind: TaskCategory) -> float:
        return learned.get(model.model_id, model.affinity(kind))

    def chooser(models: list[ModelCapability]) -> ModelSelector:
        return ModelSelector(ModelRegistry(models), dict.fromkeys(unavailable, "no key"), peers, score)

    shuffled = list(MODELS)
    random.shuffle(shuffled)
    try:
        found = chooser(MODELS).choose(category, complexity)
    except ModelNotAvailableError:
        least = required_tier(complexity) if complexity else MODEL_TIERS[0]
        left = [each for each in MODELS if each.provider not in unavailable and (not peers or each.model_id in peers)]
        assert complexity is None or not [each for each in left if tier_rank(each.tier) >= tier_rank(least)]
        return
    assert not peers or found.model_id in peers
    assert found.provider not in unavailable
    assert complexity is None or tier_rank(found.tier) >= tier_rank(required_tier(complexity))
    assert chooser(shuffled).choose(category, complexity) == found
    assert chooser(MODELS).check(found.model_id, complexity) == found


@pytest.mark.parametrize(
    ("given", "environ", "had"),
    [
        ({}, {}, set[str]()),
        ({}, {"ANTHROPIC_API_KEY": "k"}, {"claude"}),
        ({"model": {"api_key": "k"}}, {}, {"claude"}),
        ({"openai": {"model": "openai/gpt-6-sol"}}, {}, set[str]()),
        ({"openai": {"model": "openai/gpt-6-sol"}}, {"OPENAI_API_KEY": "k"}, {"codex"}),
        (
            {"openai": {"model": "gemini/x", "providers": {"gemini": {"base_url": "http://127.0.0.1:1/v1"}}}},
            {},
            {"gemini"},
        ),
    ],
)
def test_the_settings_say_which_providers_can_be_had(given: object, environ: dict[str, str], had: set[str]) -> None:
    availability = fleet_availability(Settings.model_validate(given), environ)
    assert set(BUILT_IN_PROVIDERS) - set(unavailable_providers(BUILT_IN_PROVIDERS, availability)) == had


def test_only_the_engine_openai_has_profiles() -> None:
    assert BUILT_IN_PROVIDERS["codex"].model_name("gpt-6-sol") == "openai/gpt-6-sol"
    assert BUILT_IN_PROVIDERS["claude"].model_name("claude-opus-5") == "claude-opus-5"
    with pytest.raises(InvalidInput, match="no profiles"):
        parse_config("providers: {claude: {engine: anthropic, profile: x}}")
