"""A configuration is checked as a whole, and its names are resolved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.errors import InvalidInput, ModelNotAvailableError
from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from nova_workers.domain.orchestrations.rules.config.values import (
    ConfigDocument,
    ModelsDocument,
    OrchestrationConfig,
    ResolvedModel,
)
from nova_workers.domain.orchestrations.rules.models.registry import known_models
from tests.requirements import proves
from tests.support.data.documents import ROOT, blocks

KNOWN = {
    "claude-opus-5": ResolvedModel(provider="claude", model_id="claude-opus-5"),
    "gpt-6-sol": ResolvedModel(provider="codex", model_id="gpt-6-sol"),
}

WHOLE = """
engine:
  max_agent_depth: 3
  command_policy:
    whitelist: ["git status*"]
    blacklist: ["rm *"]
providers:
  claude: {engine: claude_agent}
  local: {engine: openai, profile: vllm}
models:
  opus: claude-opus-5
  deep: {model_id: opus, reasoning_effort: high}
  small: {provider: local, model_id: qwen-9b}
defaults:
  model: opus
  master_model: deep
  peer_models: [opus, small]
experts:
  reviewer:
    system_prompt: You review code.
    model: deep
    permission_mode: PLAN
    mcp_servers:
      docs: {type: http, url: "https://docs.test/mcp", headers: {X-Key: "${secret:DOCS_KEY}"}}
plugins:
  browser: {type: stdio, command: browse, tags: [Web Page, expert]}
model_registry:
  qwen-9b: {provider: local, tier: FAST, affinities: {coding: 0.4}, cost_factor: 0.1}
"""


def problems(text: str, models_text: str = "") -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        parse_config(text, models_text, known=KNOWN)
    errors = refused.value.fields["errors"]
    assert isinstance(errors, list)
    return [f"{each['file']}:{each['line']}:{each['column']} {each['field']}: {each['message']}" for each in errors]


def test_all_seven_sections_are_read() -> None:
    config = parse_config(WHOLE, known=KNOWN)
    assert config.engine.max_agent_depth == 3
    assert config.engine.agent_timeout_seconds == 7200
    assert config.engine.command_policy.blacklist == ("rm *",)
    assert config.providers["claude"].engine == "claude_agent"
    assert config.providers["gemini"].profile == "gemini"
    assert config.model("deep") == ResolvedModel(provider="claude", model_id="claude-opus-5", reasoning_effort="high")
    assert config.model("qwen-9b") == ResolvedModel(provider="local", model_id="qwen-9b")
    assert config.peers() == {"claude-opus-5", "qwen-9b"}
    expert = config.experts["reviewer"]
    assert (expert.expert_id, expert.name, expert.permission_mode) == ("reviewer", "reviewer", "PLAN")
    assert expert.mcp_servers["docs"].references() == {"DOCS_KEY"}
    assert config.plugins["browser"].tags == ("web page", "expert")
    assert config.model_registry["qwen-9b"].tier == "fast"


def test_the_documented_files_have_no_errors() -> None:
    example, *others = blocks("yaml", ROOT / "docs" / "orchestration-config.md")
    for other in others:
        parse_config(other.text, known=known_models())
    config = parse_config(example.text, known=known_models())
    assert config.model("deep").reasoning_effort == "high"
    assert config.peers() == {config.model("sonnet").model_id, "qwen3-8b"}


def test_an_empty_file_has_the_defaults() -> None:
    assert parse_config("") == OrchestrationConfig()
    assert parse_config("engine:\nmodels:\n") == OrchestrationConfig()


def test_a_name_that_nothing_defines_is_no_model() -> None:
    with pytest.raises(ModelNotAvailableError, match="'opus'"):
        OrchestrationConfig().model("opus")


@proves("orchestration.config-whole")
def test_everything_that_is_wrong_is_reported_at_once_with_its_place() -> None:
    text = """engine:
  max_agent_dept: 3
models:
  a: b
  b: {model_id: a}
  c: {provider: clade, model_id: x}
  e: claude-opus-4
experts:
  reviewer:
    model: opsu
defaults:
  model: c
plugins:
  docs: {type: stdio, command: x, argz: [1]}
"""
    found = problems(text, "models:\n  opus: 3\nengine: {}\n")
    assert [each.partition(": ")[0] for each in found] == [
        "models.yaml:2:9 models.opus",
        "models.yaml:3:1 engine",
        "orchestration.yaml:2:3 engine.max_agent_dept",
        "orchestration.yaml:4:6 models.a",
        "orchestration.yaml:6:17 models.c.provider",
        "orchestration.yaml:7:6 models.e",
        "orchestration.yaml:10:5 experts.reviewer.system_prompt",
        "orchestration.yaml:10:12 experts.reviewer.model",
        "orchestration.yaml:14:35 plugins.docs.argz",
    ]
    said = "\n".join(found)
    assert "did you mean 'max_agent_depth'?" in said
    assert "a → b → a" in said
    assert "did you mean 'claude'?" in said
    assert "did you mean 'claude-opus-5'?" in said
    assert "did you mean 'opus'?" in said
    assert "did you mean 'args'?" in said


def test_the_message_has_one_line_for_each_error() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_config("engine: {a: 1, b: 2}")
    first, *rest = refused.value.message.splitlines()
    assert first == "The configuration of orchestrations has 2 errors:"
    assert [line.partition(": ")[0] for line in rest] == ["orchestration.yaml:1:10", "orchestration.yaml:1:16"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a]", "contains itself"),
        ("engine: [", "not YAML"),
        ("engine: !!python/object:os.system 1", "the tag"),
        ("- 1", "a mapping of sections"),
        ("engine: {}\nengine: {}", "twice"),
        ("on: 1", "put it in quotes"),
        ("[" * 5_000, "nested"),
        ("a: \ud800", "UTF-8"),
        ("a: \x01", "not YAML"),
        ("--- 1\n--- 2", "second document"),
        ("<<: {a: 1}", "merge keys"),
        ("#" * 300_000, "262144"),
        ("a: \x00", "U+0000"),
    ],
)
def test_what_is_no_plain_value_is_refused(text: str, message: str) -> None:
    (found,) = problems(text)
    assert message in found


def test_many_aliases_in_a_row_are_bounded() -> None:
    row = "".join(f"  m{at}: m{at + 1}\n" for at in range(25))
    found = problems(f"models:\n{row}  m25: opus\n  opus: claude-opus-5\n")
    assert [each.partition(": ")[0] for each in found] == [
        f"orchestration.yaml:{at + 2}:7 models.m{at}" for at in range(7)
    ]
    assert all("more than 20 aliases" in each for each in found)


def test_a_long_cycle_is_one_error() -> None:
    (found,) = problems("models:\n" + "".join(f"  m{at}: m{(at + 1) % 10}\n" for at in range(10)))
    assert "m0 → m1 → " in found


def test_aliases_of_yaml_cannot_expand_a_short_text_into_a_large_value() -> None:
    levels = "\n".join(f"l{at}: &l{at} [{', '.join([f'*l{at - 1}'] * 9)}]" for at in range(1, 15))
    (found,) = problems(f"l0: &l0 [1]\n{levels}")
    assert "more than 20000 values" in found


NAMES = st.sampled_from(["a", "b", "c", "d", "claude-opus-5", "gpt-6-sol", "nothing"])
ALIASES = st.dictionaries(
    NAMES,
    st.one_of(
        NAMES,
        st.fixed_dictionaries(
            {"model_id": NAMES},
            optional={
                "provider": st.sampled_from(["claude", "codex", "nowhere"]),
                "reasoning_effort": st.sampled_from(["low", "high"]),
            },
        ),
    ),
    max_size=6,
)


def yaml_of(aliases: dict[str, object]) -> str:
    # JSON is YAML.
    return ConfigDocument.model_validate({"models": aliases}).model_dump_json(include={"models"})


@given(ALIASES)
def test_every_alias_stands_for_a_model_of_a_known_provider_or_the_file_is_refused(
    aliases: dict[str, object],
) -> None:
    try:
        config = parse_config(yaml_of(aliases), known=KNOWN)
    except InvalidInput:
        return
    for name in aliases:
        assert config.model(name).provider in config.providers


@given(ALIASES)
def test_an_alias_has_the_meaning_of_the_alias_that_it_names(aliases: dict[str, object]) -> None:
    text = yaml_of(aliases)
    try:
        config = parse_config(text, known=KNOWN)
    except InvalidInput:
        return
    for name, alias in ConfigDocument.model_validate_json(text).models.items():
        found = config.model(name)
        if alias.provider is not None:
            assert (found.provider, found.model_id) == (alias.provider, alias.model_id)
        elif alias.model_id != name:
            target = config.model(alias.model_id)
            assert (found.provider, found.model_id) == (target.provider, target.model_id)
            assert found.reasoning_effort == alias.reasoning_effort or target.reasoning_effort


ENTRIES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.fixed_dictionaries({"provider": st.sampled_from(["claude", "codex"]), "model_id": st.sampled_from(["x", "y"])}),
)
REGISTRY = st.dictionaries(
    st.sampled_from(["x", "y"]),
    st.fixed_dictionaries({"provider": st.just("claude"), "cost_factor": st.sampled_from([1.0, 2.0])}),
)


@given(ENTRIES, REGISTRY, ENTRIES, REGISTRY)
def test_the_configuration_takes_precedence_over_the_models_beside_it(
    models: dict[str, object],
    registry: dict[str, object],
    beside: dict[str, object],
    registry_beside: dict[str, object],
) -> None:
    main = ConfigDocument.model_validate({"models": models, "model_registry": registry})
    other = ModelsDocument.model_validate({"models": beside, "model_registry": registry_beside})
    config = parse_config(main.model_dump_json(include={"models", "model_registry"}), other.model_dump_json())
    assert config.model_registry == {**other.model_registry, **main.model_registry}
    for name, alias in {**other.models, **main.models}.items():
        assert config.model(name) == ResolvedModel(provider=str(alias.provider), model_id=alias.model_id)
