"""The form over an agent's configuration: from the schema of the API's contract, in sections by subject.

A field that the contract gets appears in the last section by itself, with its description, default and bounds.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, cast

from nova_workers.base.vocabulary import ENGINE_NAMES
from nova_workers.client.client import NovaClient
from nova_workers.client.paging import iterate
from nova_workers.console.access import if_allowed
from nova_workers.console.schema_forms import Node, Option, Shape, make_node, options_shape, shape_of
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import AgentReplace
from nova_workers.contracts.native import NATIVE_TOOLS

_SECTIONS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Basics", ("name", "description", "model", "engine")),
    ("Prompt", ("identity", "instructions", "responsibilities")),
    ("Capabilities", ("capabilities",)),
    ("Skills", ("skills",)),
    ("Trust and native tools", ("trust", "native_tools", "directories")),
    ("Permissions", ("permissions",)),
    ("Subagents", ("subagents",)),
    ("Model settings", ("max_tokens", "temperature", "thinking_budget_tokens", "output_schema", "engine_config")),
    ("Limits", ("max_turns", "timeout_s", "token_budget", "cost_budget_usd", "max_running", "max_cost_usd_per_day")),
    ("Threads", ("retention",)),
)
_REST = "Further"
_MODELS = ("haiku", "sonnet", "opus")
"""The aliases that every fleet has."""
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Choices:
    """What the fleet and the tenant have for an agent to be given.

    Attributes:
        capabilities: As the API lists them.
        skills: The library; empty for a key that may not read it.
    """

    capabilities: tuple[JsonObject, ...]
    skills: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Fields of one subject.

    Attributes:
        set_fields: How many of them differ from their defaults.
        wrong: How many have errors.
        is_open: Whether it is unfolded at first: one section is, the first, or the first with an error.
    """

    title: str
    nodes: tuple[Node, ...]
    set_fields: int
    wrong: int
    is_open: bool = False

    @property
    def id(self) -> str:
        """The element's id."""
        return _section_id(self.title)


async def load_choices(client: NovaClient) -> Choices:
    """Return the choices that the form offers."""
    capabilities, skills = await asyncio.gather(client.capabilities(), if_allowed(_skills(client), ()))
    return Choices(tuple(capabilities), skills)


def agent_shape(choices: Choices, value: Mapping[str, object]) -> Shape:
    """Return the shape of a configuration: the contract's schema, with what the fleet and the tenant have.

    Args:
        value: A configuration; capabilities in it that the fleet lacks have a field, too.
    """
    shape = _contract_shape()
    granted = cast(Mapping[str, object], given) if isinstance(given := value.get("capabilities"), Mapping) else {}
    known = {str(capability["name"]): capability for capability in choices.capabilities if not capability["injected"]}
    every = {name: _grant_shape(shape, known.get(name)) for name in [*known, *(set(granted) - set(known))]}
    fields = dict(shape.fields)
    fields["capabilities"] = options_shape(fields["capabilities"], every)
    fields["skills"] = fields["skills"].with_options(choices.skills)
    fields["native_tools"] = fields["native_tools"].with_options(_native_options())
    fields["model"] = fields["model"].with_options(map(Option, _MODELS))
    fields["engine"] = fields["engine"].with_options(map(Option, ENGINE_NAMES))
    return replace(shape, fields=fields)


def sections_of(root: Node, errors: Mapping[str, str]) -> list[Section]:
    """Return a configuration's fields by subject."""
    named = {name for _, names in _SECTIONS for name in names}
    further = tuple(name for name in root.shape.fields if name not in named)
    sections = [_section(root, title, names, errors) for title, names in (*_SECTIONS, (_REST, further)) if names]
    shown = next((at for at, section in enumerate(sections) if section.wrong), 0)
    return [replace(section, is_open=at == shown) for at, section in enumerate(sections)]


def section_of(path: str) -> str:
    """Return the id of the section that has a field, by the field's path."""
    name = path.partition(".")[0]
    return _section_id(next((title for title, names in _SECTIONS if name in names), _REST))


def form_root(choices: Choices, value: Mapping[str, object]) -> Node:
    """Return the fields of a configuration, with its values."""
    return make_node(agent_shape(choices, value), value)


def _section_id(title: str) -> str:
    return f"section-{title.lower().replace(' ', '-')}"


def _section(root: Node, title: str, names: Iterable[str], errors: Mapping[str, str]) -> Section:
    nodes = tuple(root.child(name) for name in names)
    wrong = sum(place == node.path or place.startswith(f"{node.path}.") for node in nodes for place in errors)
    return Section(title, nodes, sum(map(_set_fields, nodes)), wrong)


def _set_fields(node: Node) -> int:
    """Return how much is set in a field: of grants and of lists, how many there are."""
    if node.shape.kind == "options":
        return sum(child.is_on for child in node.children)
    return max(len(node.children), len(node.chosen), 1) if node.is_set and node.shape.kind != "group" else node.is_set


@cache
def _contract_shape() -> Shape:
    return shape_of(AgentReplace.model_json_schema())


def _grant_shape(shape: Shape, capability: JsonObject | None) -> Shape:
    """Return the shape of a grant: its tools to tick, and the configuration that the capability declares."""
    item = shape.fields["capabilities"].row
    if capability is None:
        return replace(item, hint="This fleet does not have this capability any more.")
    fields = dict(item.fields)
    tools = cast(list[JsonObject], capability["tools"])
    if tools:
        options = [
            Option(str(tool["name"]), str(tool["description"]), inputs_of(cast(JsonObject, tool["input_schema"])))
            for tool in tools
        ]
        fields["tools"] = replace(fields["tools"].with_options(options), label="Tools", hint="")
    config: dict[str, Any] = capability["config_schema"]
    if config.get("properties"):
        fields["config"] = replace(shape_of(config), label="Configuration")
    else:
        del fields["config"]
    return replace(item, label=str(capability["name"]), hint=str(capability["description"]), fields=fields)


def inputs_of(schema: JsonObject) -> tuple[tuple[str, str], ...]:
    """Return the inputs of a tool: the name of each, and its type and description in words."""
    properties = cast(dict[str, JsonObject], schema.get("properties") or {})
    required = cast(list[str], schema.get("required") or [])
    return tuple((name, _in_words(each, is_required=name in required)) for name, each in properties.items())


def _in_words(schema: JsonObject, *, is_required: bool) -> str:
    kinds = [schema, *cast(list[JsonObject], schema.get("anyOf") or [])]
    words = [str(kind["type"]) for kind in kinds if kind.get("type") not in (None, "null")]
    if "enum" in schema:
        words = [" | ".join(map(str, cast(list[object], schema["enum"])))]
    kind = " or ".join(words) or "any value"
    about = str(schema.get("description") or "")
    return f"{kind}{'' if is_required else ', optional'}{'. ' + about if about else ''}"


def _native_options() -> list[Option]:
    least: dict[str, str] = {}
    for trust, tools in NATIVE_TOOLS.items():
        for tool in tools:
            least.setdefault(tool, trust)
    return [Option(tool, f"from {trust} on") for tool, trust in least.items()]


async def _skills(client: NovaClient) -> tuple[Option, ...]:
    return tuple([Option(skill.name, skill.description) async for skill in iterate(client.skills.list, limit=_PAGE)])
