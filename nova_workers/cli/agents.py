"""`nova agents`: list, make and change agents."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.output import Column, short, stamp
from nova_workers.cli.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.wire import AgentCreate, AgentReplace, AgentView
from nova_workers.errors import InvalidInput

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="List, make and change agents."
)

_COLUMNS: tuple[Column, ...] = ("id", "version", ("name", "fold"), "model", "engine", "trust", "updated")

AgentArgument = Annotated[str, typer.Argument(help="The agent's id.")]
FileOption = Annotated[str | None, typer.Option("--file", "-f", help="JSON of the whole configuration; - reads stdin.")]
NameOption = Annotated[str | None, typer.Option(help="What people call it.")]
DescriptionOption = Annotated[str | None, typer.Option(help="What it is for.")]
IdentityOption = Annotated[str | None, typer.Option(help="Who it is; @FILE reads a file.")]
InstructionsOption = Annotated[str | None, typer.Option(help="How it works; @FILE reads a file.")]
ModelOption = Annotated[str | None, typer.Option(help="A model or an alias.")]
EngineOption = Annotated[str | None, typer.Option(help="The engine that runs it.")]
EngineConfigOption = Annotated[str | None, typer.Option(help="JSON for the engine; @FILE reads a file.")]
TrustOption = Annotated[str | None, typer.Option(help="sandbox, controlled or unrestricted.")]
CapabilityOption = Annotated[
    list[str] | None,
    typer.Option("--capability", metavar="NAME[=TOOL,TOOL]", help="Grants it, whole or some of its tools."),
]
MaxTurnsOption = Annotated[int | None, typer.Option(min=1, max=1000, help="Most model calls a turn.")]


@remote(app, "list")
async def list_agents(session: Session, limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List agents."""
    page = await session.client.agents.list(limit=limit, cursor=cursor)
    show_page(
        session.out,
        page,
        _COLUMNS,
        _row,
        nothing="No agents.",
    )


@remote(app, "show")
async def show(session: Session, agent: AgentArgument) -> None:
    """Show an agent's whole configuration."""
    _show(session, await session.client.agents.get(agent))


@remote(app, "create")
async def create(
    session: Session,
    agent: Annotated[str | None, typer.Argument(help="The new agent's id; may be in the file instead.")] = None,
    file: FileOption = None,
    name: NameOption = None,
    description: DescriptionOption = None,
    identity: IdentityOption = None,
    instructions: InstructionsOption = None,
    model: ModelOption = None,
    engine: EngineOption = None,
    engine_config: EngineConfigOption = None,
    trust: TrustOption = None,
    capability: CapabilityOption = None,
    max_turns: MaxTurnsOption = None,
) -> None:
    """Make an agent, of a file or of options; an option wins over the file."""
    spec = _read_spec(file) if file else {}
    spec |= _given(
        name, description, identity, instructions, model, engine, engine_config, trust, capability, max_turns
    )
    if agent:
        spec["id"] = agent
    spec.setdefault("name", spec.get("id"))
    _show(session, await session.client.agents.create(build(AgentCreate, spec)))


@remote(app, "edit")
async def edit(
    session: Session,
    agent: AgentArgument,
    file: FileOption = None,
    name: NameOption = None,
    description: DescriptionOption = None,
    identity: IdentityOption = None,
    instructions: InstructionsOption = None,
    model: ModelOption = None,
    engine: EngineOption = None,
    engine_config: EngineConfigOption = None,
    trust: TrustOption = None,
    capability: CapabilityOption = None,
    max_turns: MaxTurnsOption = None,
) -> None:
    """Make a new version: the whole configuration from a file, or the present one with the options changed."""
    given = _given(
        name, description, identity, instructions, model, engine, engine_config, trust, capability, max_turns
    )
    if not file and not given:
        raise InvalidInput("Nothing to change: give --file, or an option such as --model.")
    if file:
        spec = _read_spec(file)
        if spec.pop("id", agent) != agent:
            raise InvalidInput(f"The file is about another agent than {agent!r}; an id cannot change.")
    else:
        spec = (await session.client.agents.get(agent)).spec.model_dump(mode="json", exclude_unset=True)
    _show(session, await session.client.agents.replace(agent, build(AgentReplace, spec | given)))


@remote(app, "delete")
async def delete(session: Session, agent: AgentArgument) -> None:
    """Delete an agent."""
    await session.client.agents.delete(agent)
    if session.out.json:
        session.out.document({"id": agent, "deleted": True})
    else:
        session.out.text(f"deleted {agent}")


@remote(app, "versions")
async def versions(
    session: Session, agent: AgentArgument, limit: LimitOption = 50, cursor: CursorOption = None
) -> None:
    """List an agent's versions, newest first."""
    page = await session.client.agents.versions(agent, limit=limit, cursor=cursor)
    show_page(
        session.out,
        page,
        _COLUMNS,
        _row,
        nothing="No versions.",
    )


@remote(app, "rollback")
async def rollback(
    session: Session,
    agent: AgentArgument,
    version: Annotated[int, typer.Argument(min=1, help="The version to return to.")],
) -> None:
    """Make an earlier version the newest again."""
    _show(session, await session.client.agents.rollback(agent, version))


def _row(agent: AgentView) -> tuple[str, ...]:
    spec = agent.spec
    return (
        agent.id,
        str(agent.version),
        short(spec.name),
        spec.model or "default",
        spec.engine or "default",
        spec.trust,
        stamp(agent.updated_at),
    )


def _show(session: Session, agent: AgentView) -> None:
    if session.out.json:
        session.out.document(agent)
        return
    spec = agent.spec
    session.out.facts(
        (
            ("id", agent.id),
            ("version", str(agent.version)),
            ("name", spec.name),
            ("description", spec.description),
            ("model", spec.model or "the fleet's default"),
            ("engine", spec.engine or "the fleet's default"),
            ("engine config", json.dumps(spec.engine_config) if spec.engine_config else ""),
            ("trust", spec.trust),
            ("capabilities", ", ".join(spec.capabilities)),
            ("directories", ", ".join(spec.directories)),
            ("most model calls", str(spec.max_turns or "")),
            ("identity", spec.identity),
            ("instructions", spec.instructions),
            *((f"duty: {duty.title}", duty.content) for duty in spec.responsibilities),
            ("updated", stamp(agent.updated_at)),
        )
    )


def _given(
    name: str | None,
    description: str | None,
    identity: str | None,
    instructions: str | None,
    model: str | None,
    engine: str | None,
    engine_config: str | None,
    trust: str | None,
    capability: list[str] | None,
    max_turns: int | None,
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": name,
        "description": description,
        "identity": _text_or_file(identity),
        "instructions": _text_or_file(instructions),
        "model": model,
        "engine": engine,
        "engine_config": _parse_object(_text_or_file(engine_config), "--engine-config"),
        "trust": trust,
        "capabilities": _grants(capability) if capability else None,
        "max_turns": max_turns,
    }
    return {key: value for key, value in values.items() if value is not None}


def _grants(capabilities: list[str]) -> dict[str, dict[str, Any]]:
    grants: dict[str, dict[str, Any]] = {}
    for grant in capabilities:
        name, equals, tools = grant.partition("=")
        grants[name] = {"tools": [tool.strip() for tool in tools.split(",")]} if equals else {}
    return grants


def _read_spec(file: str) -> dict[str, Any]:
    text = sys.stdin.read() if file == "-" else _read_file(file)
    spec = _parse_object(text, "stdin" if file == "-" else file) or {}
    # What `show --json` writes is taken too.
    if isinstance(spec.get("spec"), dict) and "id" in spec:
        return {"id": spec["id"], **spec["spec"]}
    return spec


def _parse_object(text: str | None, source: str) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{source} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{source} is not a JSON object: {text[:60]!r}")
    return value


def _text_or_file(value: str | None) -> str | None:
    return _read_file(value[1:]) if value and value.startswith("@") else value


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path!r} cannot be read: {error}") from error
