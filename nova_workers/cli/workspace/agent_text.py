"""Agents as text: read from files and options, shown whole, compared."""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.terminal.output import Facts, age, stamp
from nova_workers.cli.terminal.text_input import read_file
from nova_workers.contracts.agents import AgentSpec, ApprovalRule, CapabilityGrant, SubagentSpec
from nova_workers.contracts.http.wire import AgentView

_DEFAULT = "the fleet's default"


class _DuplicateKey(yaml.YAMLError):
    """A duplicate key. Parsers of YAML and JSON would silently take the last one."""


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys in a mapping."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise _DuplicateKey(f"the key {key.value!r} is there twice, again at line {key.start_mark.line + 1}")
            seen.add((key.tag, key.value))
        return node


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks, and short lists in one line."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # YAML takes other characters than "\n" for line ends too, such as U+0085, and writes "\n" for them unless quoted.
    readable = text.replace("\n", "").isprintable()
    style = ("|" if "\n" in text else None) if readable else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def agent_yaml(agent: AgentView) -> str:
    """Return an agent as a file for `create` and `edit`; fields with default values are left out."""
    spec = {"id": agent.id, **agent.spec.model_dump(mode="json", exclude_defaults=True)}
    return yaml.dump(spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def diff_lines(before: AgentView, after: AgentView) -> list[str]:
    """Return the changes between two versions, as a unified diff of their files."""
    return list(
        difflib.unified_diff(
            agent_yaml(before).splitlines(),
            agent_yaml(after).splitlines(),
            _version_label(before),
            _version_label(after),
            lineterm="",
        )
    )


def changed_fields(before: AgentView, after: AgentView) -> list[str]:
    """Return the names of the fields that differ; of a rename, the former id."""
    fields = [field for field in AgentSpec.model_fields if getattr(before.spec, field) != getattr(after.spec, field)]
    return fields if after.renamed_from is None else [f"id (was {after.renamed_from})", *fields]


def agent_facts(agent: AgentView) -> Facts:
    """Return names and values of an agent's configuration; empty values are to be left out."""
    spec = agent.spec
    yield "id", agent.id
    yield "version", f"{agent.version}, by {agent.created_by}"
    yield "name", spec.name
    yield "description", spec.description
    yield "model", spec.model or _DEFAULT
    yield "engine", spec.engine or _DEFAULT
    yield "engine config", json.dumps(spec.engine_config) if spec.engine_config else ""
    yield "trust", spec.trust
    yield "capabilities", "\n".join(_grant(name, grant) for name, grant in spec.capabilities.items())
    yield "skills", ", ".join(spec.skills)
    yield "directories", "\n".join(spec.directories)
    yield from _permission_facts(spec)
    yield from _bound_facts(spec)
    yield "answers fulfil", "" if spec.output_schema is None else json.dumps(spec.output_schema)
    for name, helper in spec.subagents.items():
        yield f"subagent: {name}", _subagent(helper)
    yield "identity", spec.identity
    yield "instructions", spec.instructions
    for duty in spec.responsibilities:
        yield f"duty: {duty.title}", duty.content or "(no text)"
    yield "updated", agent.updated_at


def read_spec(file: str) -> dict[str, Any]:
    """Return the configuration in a YAML or JSON file: all that `show` writes, or only the configuration.

    Raises:
        InvalidInput: It cannot be read, or is not an agent configuration.
    """
    source = "stdin" if file == "-" else file
    text = read_file(file)
    spec = parse_object(text, source) if text.lstrip().startswith(("{", "[")) else _parse_yaml(text, source)
    if isinstance(spec.get("spec"), dict) and "id" in spec:
        return {"id": spec["id"], **spec["spec"]}
    return spec


def parse_object(text: str, source: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        InvalidInput: It is not a JSON object.
    """
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except _DuplicateKey as error:
        raise InvalidInput(f"{source}: {error}") from error
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{source} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{source} is not a JSON object: {text[:60]!r}")
    return value


def regranted(
    spec: Mapping[str, Any], capabilities: Iterable[str], skills: Iterable[str], revoked: Iterable[str]
) -> dict[str, Any]:
    """Return the fields of a configuration that change when grants are added and revoked.

    Args:
        spec: The configuration before. A repeated grant keeps its ``config``.
        capabilities: ``NAME``, which is all its tools, or ``NAME=TOOL,TOOL``.
        skills: Names of skills.
        revoked: Names of capabilities and of skills.

    Raises:
        InvalidInput: The configuration's grants have another form, or a revoked one is not among them.
    """
    grants: Any = spec.get("capabilities") or {}
    library: Any = spec.get("skills") or []
    names = isinstance(library, list) and all(isinstance(name, str) for name in library)
    if not isinstance(grants, dict) or not names:
        raise InvalidInput("capabilities is an object by name, and skills a list of names.", field="capabilities")
    gone = set(revoked)
    if unknown := sorted(gone - {*grants, *library}):
        raise InvalidInput(f"--revoke {unknown[0]!r}: it has no capability and no skill of that name.", field="revoke")
    granted = {name: grant for name, grant in grants.items() if name not in gone}
    for capability in capabilities:
        name, equals, tools = capability.partition("=")
        before = granted.get(name)
        only = {"tools": [tool.strip() for tool in tools.split(",")] if equals else None}
        granted[name] = before | only if isinstance(before, dict) else only
    named = list(dict.fromkeys([*(name for name in library if name not in gone), *skills]))
    changed = {"capabilities": (grants, granted), "skills": (library, named)}
    return {field: after for field, (was, after) in changed.items() if after != was}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _DuplicateKey(f"the key {key!r} is there twice")
        made[key] = value
    return made


def _parse_yaml(text: str, source: str) -> dict[str, Any]:
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a safe loader
    except _DuplicateKey as error:
        raise InvalidInput(f"{source}: {error}") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{source} is neither YAML nor JSON: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{source} holds no configuration, but {text[:60]!r}")
    return {str(key): item for key, item in value.items()}


def _version_label(agent: AgentView) -> str:
    return f"{agent.id} version {agent.version}\t{stamp(agent.updated_at)} by {agent.created_by}"


def _grant(name: str, grant: CapabilityGrant) -> str:
    tools = "" if grant.tools is None else f" (only {', '.join(grant.tools) or 'no tool'})"
    return f"{name}{tools}" + (f" {json.dumps(grant.config)}" if grant.config else "")


def _permission_facts(spec: AgentSpec) -> Facts:
    given = spec.permissions
    yield "approvals", "\n".join(_rule(rule) for rule in given.approvals)
    yield "allowed commands", "\n".join(given.allow_commands)
    yield "asked commands", "\n".join(given.ask_commands)
    yield "denied commands", "\n".join(given.deny_commands)
    yield "other commands", "" if given.unlisted_commands == "allow" else given.unlisted_commands


def _rule(rule: ApprovalRule) -> str:
    wanted = [repr(rule.pattern)] if rule.pattern else []
    wanted += [f"{path} is {pattern!r}" for path, pattern in (rule.arguments or {}).items()]
    return f"{rule.decision}: {rule.tool}" + (f" where {' and '.join(wanted)}" if wanted else "")


def _bound_facts(spec: AgentSpec) -> Facts:
    yield from {
        "most model calls": spec.max_turns,
        "most tokens a response": spec.max_tokens,
        "temperature": None if spec.temperature is None else f"{spec.temperature:g}",
        "thinking tokens": spec.thinking_budget_tokens,
        "most tokens a turn": spec.token_budget,
        "most cost a turn": None if spec.cost_budget_usd is None else f"${spec.cost_budget_usd:g}",
        "most time a run": None if spec.timeout_s is None else age(spec.timeout_s),
        "most runs at once": spec.max_running,
        "most cost a day": None if spec.max_cost_usd_per_day is None else f"${spec.max_cost_usd_per_day:g}",
    }.items()
    kept = spec.retention
    if kept is not None:
        rest = "all but their latest turn is" if kept.keep == "latest" else "they are"
        yield "unused threads", f"after {kept.after_days} days {rest} deleted"


def _subagent(helper: SubagentSpec) -> str:
    tools = "all tools" if helper.tools is None else ", ".join(helper.tools) or "no tool"
    about = f"{helper.model or 'the same model'}, {tools}, at most {helper.max_turns} model calls"
    return f"{helper.description}\n({about})\n{helper.prompt}"
