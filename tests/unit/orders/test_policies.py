"""The built-in policies, and the rule that code reads a policy's fields and never its id or tier."""

import re
from hashlib import sha256
from pathlib import Path

import pytest
import rfc8785
from jsonschema import Draft202012Validator

import api
import nova_workers
from nova_workers.contracts.orders import AiWorkOrderV1
from nova_workers.domain.orders.rules.policies.builtin_policies import builtin_policies
from nova_workers.domain.orders.rules.policies.choosing import models_of, presentation_of
from tests.support.data.order_policies import order, policy
from tests.support.data.work_orders import EXAMPLES, example_order

# A version of a policy never changes: a result is returned again only for the same version. New content, new version.
PUBLISHED = {
    ("butler_basic", "1.0.0"): "6d815a3f5a97dca2",
    ("launchbase_standard", "1.0.0"): "766dc6b794c2c9e4",
    ("launchbase_swarm_premium", "1.0.0"): "2755f99c95b9ea21",
}


def test_the_policies_of_the_contracts_examples_are_built_in() -> None:
    assert set(builtin_policies()) == set(EXAMPLES)


def test_a_published_version_of_a_built_in_policy_has_not_changed() -> None:
    found = {
        (each.id, each.version): sha256(rfc8785.dumps(each.to_wire())).hexdigest()[:16]
        for each in builtin_policies().values()
    }
    assert found == PUBLISHED


@pytest.mark.parametrize("policy_id", EXAMPLES)
def test_an_example_fits_its_policy(policy_id: str) -> None:
    found = builtin_policies()[policy_id]
    example = AiWorkOrderV1.from_wire(example_order(policy_id))
    assert found.inputs_schema is not None
    assert Draft202012Validator(found.inputs_schema).is_valid(example.inputs)
    assert not Draft202012Validator(found.inputs_schema).is_valid({**example.inputs, "userText": "as typed"})
    asked = example.extensions.presentation_mode if example.extensions else None
    assert presentation_of(example, found) == (asked or found.presentation.default)


def test_models_without_a_required_capability_are_not_called() -> None:
    (role,) = policy().roles
    able = [{**model.to_wire(), "capabilities": ["vision", "fast"]} for model in role.models[1:]]
    found = policy(
        requiredCapabilities=["vision"], roles=[{**role.to_wire(), "models": [role.models[0].to_wire(), *able]}]
    )
    assert [each.model for each in models_of(order(), found, found.roles[0])] == [role.models[1].model]
    assert models_of(order(), policy(requiredCapabilities=["sound"]), role) == []


def test_no_code_depends_on_the_tier_or_the_id_of_a_policy() -> None:
    roots = [Path(str(package.__file__)).parent for package in (nova_workers, api)]
    sources = {path.relative_to(root.parent): path.read_text("utf-8") for root in roots for path in root.rglob("*.py")}
    ids = re.compile("|".join(map(re.escape, EXAMPLES)))
    assert [str(path) for path, text in sources.items() if ids.search(text)] == []
    readers = {path: text for path, text in sources.items() if "contracts.orders" in text or "orders" in path.parts}
    assert len(readers) > 5
    tier = re.compile(r"""\.tier\b|\[["']tier["']\]|get\(["']tier["']""")
    assert [str(path) for path, text in readers.items() if tier.search(text)] == []


@pytest.mark.parametrize(
    ("hints", "allowed", "providers"),
    [
        (None, True, ["anthropic", "openai"]),
        ({"preferred": ["openai"]}, True, ["openai", "anthropic"]),
        ({"preferred": ["openai"]}, False, ["anthropic", "openai"]),
        ({"preferred": ["openai"], "allowFallback": False}, True, ["openai"]),
        ({"preferred": ["elsewhere"], "allowFallback": False}, True, []),
        ({"allowFallback": False}, True, ["anthropic", "openai"]),
    ],
)
def test_hints_change_the_order_of_models_only_if_the_policy_allows_it(
    hints: dict[str, object] | None, allowed: bool, providers: list[str]
) -> None:
    document = policy(hintsOverride=allowed)
    asked = order(extensions={"providerHints": hints} if hints else {})
    assert [model.provider for model in models_of(asked, document, document.roles[0])] == providers


def test_the_preferred_provider_of_a_policy_comes_first() -> None:
    document = policy(preferredProvider="openai")
    assert [model.provider for model in models_of(order(), document, document.roles[0])] == ["openai", "anthropic"]


def test_a_presentation_that_the_policy_lacks_is_replaced_by_its_default() -> None:
    document = policy(presentation={"modes": ["ranked"], "default": "ranked"})
    assert presentation_of(order(extensions={"presentationMode": "side_by_side"}), document) == "ranked"
    assert presentation_of(order(extensions={"presentationMode": "side_by_side"}), policy()) == "side_by_side"
