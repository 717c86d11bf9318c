"""`nova agents`: list, create and change agents."""

from typing import Annotated, Any

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.resources import deletion, group, listing
from nova_workers.cli.terminal.output import Output, short, stamp
from nova_workers.cli.terminal.paging import Column, CursorOption, LimitOption, Rows, show_page
from nova_workers.cli.terminal.text_input import blame_file, read_option
from nova_workers.cli.workspace.agent_text import (
    agent_facts,
    agent_yaml,
    changed_fields,
    diff_lines,
    parse_object,
    read_spec,
    regranted,
)
from nova_workers.contracts.http.agents import AgentRename, AgentRenameView
from nova_workers.contracts.http.wire import AgentCreate, AgentPatch, AgentReplace, AgentView

app = group("List, make and change agents.")

_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}

AgentArgument = Annotated[str, typer.Argument(help="The agent's id.")]
FileOption = Annotated[
    str | None, typer.Option("--file", "-f", help="The whole configuration, YAML or JSON; - reads stdin.")
]
NameOption = Annotated[str | None, typer.Option(help="What people call it.")]
DescriptionOption = Annotated[str | None, typer.Option(help="What it is for.")]
IdentityOption = Annotated[str | None, typer.Option(help="Who it is; @FILE reads a file, - reads stdin.")]
InstructionsOption = Annotated[str | None, typer.Option(help="How it works; @FILE reads a file, - reads stdin.")]
ModelOption = Annotated[str | None, typer.Option(help="A model or an alias.")]
EngineOption = Annotated[str | None, typer.Option(help="The engine that runs it.")]
EngineConfigOption = Annotated[str | None, typer.Option(help="JSON for the engine; @FILE reads a file, - reads stdin.")]
TrustOption = Annotated[str | None, typer.Option(help="sandbox, controlled or unrestricted.")]
CapabilityOption = Annotated[
    list[str] | None,
    typer.Option(
        "--capability",
        metavar="NAME[=TOOL,TOOL]",
        help="Grants it, whole or only these tools, beside what it has; may be repeated.",
    ),
]
SkillOption = Annotated[
    list[str] | None,
    typer.Option("--skill", help="Gives it a skill of the library, beside what it has; may be repeated."),
]
RevokeOption = Annotated[
    list[str] | None,
    typer.Option("--revoke", metavar="NAME", help="Takes a capability or a skill from it; may be repeated."),
]
IfVersionOption = Annotated[
    int | None, typer.Option("--if-version", min=1, help="Refuses if the newest version is another.")
]
NoReleaseOption = Annotated[
    bool, typer.Option("--no-release", help="Only saves the version, for nova rollout start; the current one stays.")
]
VersionArgument = Annotated[int, typer.Argument(min=1, help="A version's number.")]
MaxTurnsOption = Annotated[int | None, typer.Option(min=1, max=1000, help="Most model calls a turn.")]


listing(
    app,
    "List agents.",
    lambda nova: nova.agents.list,
    Rows[AgentView](
        "No agents.",
        Column("id", lambda agent: agent.id),
        Column("version", lambda agent: agent.version),
        Column("name", lambda agent: short(agent.spec.name), "text"),
        Column("model", lambda agent: agent.spec.model or "default", "text"),
        Column("trust", lambda agent: agent.spec.trust, "spare"),
        Column("updated", lambda agent: agent.updated_at, "spare"),
        Column("engine", lambda agent: agent.spec.engine or "default", "spare"),
    ),
)


@remote(app, "show")
async def show(
    session: Session,
    agent: AgentArgument,
    version: Annotated[int | None, typer.Option("--version", min=1, help="An earlier version.")] = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="As a file that create and edit take.")] = False,
) -> None:
    """Show an agent's whole configuration."""
    agents = session.client.agents
    view = await agents.get(agent) if version is None else await agents.version(agent, version)
    if yaml:
        session.out.text(agent_yaml(view).rstrip())
    else:
        _show(session, view)
        if version is None and not session.out.json:
            for server in (await agents.tool_servers(agent)).away:
                session.out.note(f"tool server {server.name} was away at {stamp(server.at)}: {server.reason}")
                for line in server.output:
                    session.out.note(f"  {line}")


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
    skill: SkillOption = None,
    max_turns: MaxTurnsOption = None,
) -> None:
    """Create an agent from a file or from options; an option overrides the file."""
    spec = read_spec(file) if file else {}
    spec |= _given(name, description, identity, instructions, model, engine, engine_config, trust, max_turns)
    spec |= regranted(spec, capability or (), skill or (), ())
    if agent:
        spec["id"] = agent
    spec.setdefault("name", spec.get("id"))
    with blame_file(file):
        made = await session.client.agents.create(build(AgentCreate, spec))
    _show(session, made)


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
    skill: SkillOption = None,
    revoke: RevokeOption = None,
    max_turns: MaxTurnsOption = None,
    if_version: IfVersionOption = None,
    no_release: NoReleaseOption = False,
) -> None:
    """Write a new version: the whole configuration from a file, or the present one with the options changed."""
    changed = _given(name, description, identity, instructions, model, engine, engine_config, trust, max_turns)
    regrants = bool(capability or skill or revoke)
    if not file and not changed and not regrants:
        raise InvalidInput("Nothing to change: give --file, or an option such as --model.")
    agents = session.client.agents
    if file:
        spec = read_spec(file) | changed
        if spec.pop("id", agent) != agent:
            raise InvalidInput(f"The file is about another agent than {agent!r}; `nova agents rename` changes an id.")
        spec |= regranted(spec, capability or (), skill or (), revoke or ())
        with blame_file(file):
            whole = build(AgentReplace, spec)
            if no_release:
                written = await agents.save_version(agent, AgentPatch.model_validate(whole.model_dump()))
            else:
                written = await agents.replace(agent, whole, if_version=if_version)
        _show(session, written)
        return
    if regrants:
        present = await agents.get(agent)
        changed |= regranted(present.spec.model_dump(mode="json"), capability or (), skill or (), revoke or ())
        # A patch replaces a whole field, so a concurrent grant would be lost.
        if_version = if_version or present.version
    patch = build(AgentPatch, changed)
    if no_release:
        _show(session, await agents.save_version(agent, patch))
    else:
        _show(session, await agents.patch(agent, patch, if_version=if_version))


deletion(app, "Delete agents.", "agents: Ids of agents.", lambda nova: nova.agents.delete)


@remote(app, "rename")
async def rename(
    session: Session,
    agent: AgentArgument,
    to: Annotated[str, typer.Argument(help="The new id.")],
    if_version: IfVersionOption = None,
) -> None:
    """Give an agent another id, with all that it has. The former id then names the new one."""
    view = await session.client.agents.rename(agent, build(AgentRename, {"to": to}).to, if_version=if_version)
    session.out.write(view, _show_rename)


def _show_rename(out: Output, view: AgentRenameView) -> None:
    if view.state == "done":
        out.text(f"renamed {view.former_id} to {view.id}")
    else:
        out.text(
            f"renaming {view.former_id} to {view.id}: {view.threads_left} threads left. Its runs start when that is "
            "done; repeat the command to see how far it is."
        )
    for setting in view.settings:
        out.note(f"{setting} names {view.former_id}: name {view.id} there and restart the workers", "yellow")


@remote(app, "versions", hidden=True)
@remote(app, "history")
async def history(session: Session, agent: AgentArgument, limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List an agent's versions, newest first: when, by whom, and what each changed."""
    agents = session.client.agents
    page = await agents.versions(agent, limit=limit, cursor=cursor)
    earlier = list(page.items[1:])
    if page.items and page.items[-1].version > 1 and not session.out.json:
        earlier.append(await agents.version(agent, page.items[-1].version - 1))
    changes = {
        after.version: ", ".join(changed_fields(before, after))
        for after, before in zip(page.items, earlier, strict=False)
    }
    rows = Rows[AgentView](
        "No versions.",
        Column("version", lambda view: view.version),
        Column("made", lambda view: view.updated_at),
        Column("by", lambda view: view.created_by),
        Column("changed", lambda view: changes.get(view.version), "fold"),
    )
    show_page(session.out, page, rows)


@remote(app, "diff")
async def diff(
    session: Session,
    agent: AgentArgument,
    before: VersionArgument,
    after: Annotated[int | None, typer.Argument(min=1, help="Another one; the newest if left out.")] = None,
) -> None:
    """Show what changed from one version of an agent to another."""
    agents = session.client.agents
    old = await agents.version(agent, before)
    new = await agents.get(agent) if after is None else await agents.version(agent, after)
    lines = diff_lines(old, new)

    def show_lines(out: Output, _: object) -> None:
        if not lines:
            out.note(f"Versions {old.version} and {new.version} of {agent} are the same.")
        for line in lines:
            out.text(line, _DIFF_STYLES.get(line[:1], ""))

    session.out.write({"id": agent, "from": old.version, "to": new.version, "diff": lines}, show_lines)


@remote(app, "rollback")
async def rollback(
    session: Session,
    agent: AgentArgument,
    version: VersionArgument,
) -> None:
    """Make an earlier version the newest again."""
    _show(session, await session.client.agents.rollback(agent, version))


def _show(session: Session, agent: AgentView) -> None:
    session.out.record(agent, agent_facts)


def _given(
    name: str | None,
    description: str | None,
    identity: str | None,
    instructions: str | None,
    model: str | None,
    engine: str | None,
    engine_config: str | None,
    trust: str | None,
    max_turns: int | None,
) -> dict[str, Any]:
    config = read_option(engine_config)
    return given(
        name=name,
        description=description,
        identity=read_option(identity),
        instructions=read_option(instructions),
        model=model,
        engine=engine,
        engine_config=None if config is None else parse_object(config, "--engine-config"),
        trust=trust,
        max_turns=max_turns,
    )
