"""`nova skills`: the tenant's library of skills."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.resources import deletion, group, listing
from nova_workers.cli.terminal.output import Facts, Output, short
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.cli.workspace.skill_directories import read_skill, write_skill
from nova_workers.contracts.skills import SkillDetail, SkillView

app = group("The library of skills for agents.")

SkillArgument = Annotated[str, typer.Argument(help="The skill's name.")]


listing(
    app,
    "List skills, by name.",
    lambda nova: nova.skills.list,
    Rows[SkillView](
        "No skills. Add one with `nova skills add DIR`.",
        Column("name", lambda skill: skill.name),
        Column("description", lambda skill: short(skill.description), "fold"),
        Column("files", lambda skill: len(skill.files), "spare"),
        Column("updated", lambda skill: skill.updated_at, "spare"),
    ),
)


@remote(app, "show")
async def show(session: Session, skill: SkillArgument) -> None:
    """Show a skill's text, and which files it has."""
    session.out.write(await session.client.skills.get(skill), _show)


@remote(app, "add")
async def add(
    session: Session,
    directory: Annotated[Path, typer.Argument(help="A directory with a SKILL.md; its name is the skill's.")],
) -> None:
    """Add a skill from a directory, or replace the whole skill of its name."""
    name, skill, passed_over = await asyncio.to_thread(read_skill, directory)
    for path in passed_over:
        session.out.note(f"passed over: {path}")
    made = await session.client.skills.put(name, skill)
    session.out.done(made, f"added {made.name} with {len(made.files)} files")


deletion(
    app,
    "Delete skills that no agent has.",
    "skills: Names of skills.",
    lambda nova: nova.skills.delete,
    once="remove",
)


@remote(app, "get")
async def get(
    session: Session,
    skill: SkillArgument,
    directory: Annotated[Path, typer.Argument(help="Where to make the skill's directory.")],
) -> None:
    """Write a skill as a directory on this machine."""
    found = await session.client.skills.get(skill)
    files = [await session.client.skills.file(skill, file.path) for file in found.files]
    target = await asyncio.to_thread(write_skill, directory, found, files)
    session.out.done({"name": found.name, "directory": str(target)}, f"wrote {target}")


def _show(out: Output, skill: SkillDetail) -> None:
    out.facts(_facts(skill))
    out.text()
    out.text(skill.skill_md)


def _facts(skill: SkillDetail) -> Facts:
    yield "name", skill.name
    yield "description", skill.description
    yield "license", skill.license
    yield "compatibility", skill.compatibility
    for name, value in skill.metadata.items():
        yield f"metadata: {name}", value
    yield "allowed tools", " ".join(skill.allowed_tools)
    for file in skill.files:
        yield "file", f"{file.path} ({file.size_bytes} bytes)"
    yield "updated", skill.updated_at
