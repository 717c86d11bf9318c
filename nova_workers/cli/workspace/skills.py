"""`nova skills`: the tenant's library of skills."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import Column, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.cli.workspace.skill_directories import read_skill, write_skill
from nova_workers.contracts.skills import SkillDetail, SkillView

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="The library of skills for agents."
)

_COLUMNS: tuple[Column, ...] = ("name", ("description", "fold"), ("files", "spare"), ("updated", "spare"))

SkillArgument = Annotated[str, typer.Argument(help="The skill's name.")]


@remote(app, "list")
async def list_skills(session: Session, limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List skills, by name."""
    page = await session.client.skills.list(limit=limit, cursor=cursor)
    show_page(session.out, page, _COLUMNS, _row, nothing="No skills. Add one with `nova skills add DIR`.")


@remote(app, "show")
async def show(session: Session, skill: SkillArgument) -> None:
    """Show a skill's text, and which files it has."""
    _show(session, await session.client.skills.get(skill))


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
    if session.out.json:
        session.out.document(made)
    else:
        session.out.text(f"added {made.name} with {len(made.files)} files")


@remote(app, "remove")
async def remove(session: Session, skill: SkillArgument) -> None:
    """Remove a skill that no agent has."""
    await session.client.skills.delete(skill)
    if session.out.json:
        session.out.document({"name": skill, "deleted": True})
    else:
        session.out.text(f"removed {skill}")


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
    if session.out.json:
        session.out.document({"name": found.name, "directory": str(target)})
    else:
        session.out.text(f"wrote {target}")


def _row(skill: SkillView) -> tuple[str, ...]:
    return (skill.name, short(skill.description), str(len(skill.files)), stamp(skill.updated_at))


def _show(session: Session, skill: SkillDetail) -> None:
    if session.out.json:
        session.out.document(skill)
        return
    session.out.facts(
        (
            ("name", skill.name),
            ("description", skill.description),
            ("license", skill.license or ""),
            ("compatibility", skill.compatibility or ""),
            *((f"metadata: {name}", value) for name, value in skill.metadata.items()),
            ("allowed tools", " ".join(skill.allowed_tools)),
            *(("file", f"{file.path} ({file.size_bytes} bytes)") for file in skill.files),
            ("updated", stamp(skill.updated_at)),
        )
    )
    session.out.text()
    session.out.text(skill.skill_md)
