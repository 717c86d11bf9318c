"""Writes what the fleet has into a project's files."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from nova_workers.cli.projects.files import AGENTS, SKILLS, TRIGGERS, ProjectFiles
from nova_workers.cli.projects.writing import agent_markdown, agent_yaml, trigger_values, triggers_yaml
from nova_workers.cli.workspace.skill_directories import write_skill
from nova_workers.client.client import NovaClient
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.triggers import TriggerView
from nova_workers.contracts.http.wire import AgentView
from nova_workers.contracts.skills import SkillDetail, SkillFileContent

T = TypeVar("T")


async def pull_items(nova: NovaClient, project: ProjectFiles, *, everything: bool) -> list[str]:
    """Write the items of a project, or of the whole tenant, into its files. Equal ones stay as they are.

    A skill's directory is replaced as a whole. `triggers.yaml` keeps the triggers that the fleet has not.

    Returns:
        The files and directories that were written, below the project's folder.
    """
    agents, skills, triggers = await _found(nova, project, everything=everything)
    equal = await _equal(nova, project)
    written = [
        await asyncio.to_thread(_write_agent, project, agent) for agent in agents if ("agent", agent.id) not in equal
    ]
    for skill in skills:
        if ("skill", skill.name) not in equal:
            files = [await nova.skills.file(skill.name, file.path) for file in skill.files]
            await asyncio.to_thread(_write_skill, project, skill, files)
            written.append(f"{SKILLS}/{skill.name}")
    if changed := {key: trigger for key, trigger in triggers.items() if ("trigger", key) not in equal}:
        await asyncio.to_thread(_write_triggers, project, changed)
        written.append(TRIGGERS)
    return written


async def _equal(nova: NovaClient, project: ProjectFiles) -> set[tuple[str, str]]:
    """Return the items of the files that the fleet has as they are: the fleet knows which values mean the same."""
    plan = await nova.projects.plan(project.request(on_drift="overwrite"))
    differing = {(step.kind, step.name) for step in plan.steps if step.fields or step.action in {"create", "rename"}}
    items = {
        *(("agent", each.id) for each in project.agents),
        *(("skill", each.name) for each in project.skills),
        *(("trigger", each.key) for each in project.triggers),
    }
    return items - differing


async def _found(
    nova: NovaClient, project: ProjectFiles, *, everything: bool
) -> tuple[list[AgentView], list[SkillDetail], dict[str, TriggerView]]:
    names: dict[str, dict[str, str]] = {"agent": {}, "skill": {}, "trigger": {}}
    if await _is_known(nova, project.name):
        async for item in _all(lambda cursor: nova.projects.items(project.name, cursor=cursor)):
            names[item.kind][item.resource_id] = item.name
    agents = [
        agent
        async for agent in _all(lambda cursor: nova.agents.list(cursor=cursor))
        if everything or agent.id in names["agent"]
    ]
    skills = [
        await nova.skills.get(skill.name)
        async for skill in _all(lambda cursor: nova.skills.list(cursor=cursor))
        if everything or skill.name in names["skill"]
    ]
    triggers = {
        names["trigger"].get(trigger.id) or trigger.id.replace("_", "-").lower(): trigger
        async for trigger in _all(lambda cursor: nova.triggers.list(cursor=cursor))
        if everything or trigger.id in names["trigger"]
    }
    return agents, skills, triggers


async def _is_known(nova: NovaClient, name: str) -> bool:
    async for each in _all(lambda cursor: nova.projects.list(cursor=cursor)):
        if each.project == name:
            return True
    return False


async def _all(page: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    cursor: str | None = None
    while True:
        found = await page(cursor)
        for item in found.items:
            yield item
        if (cursor := found.next_cursor) is None:
            return


def _write_agent(project: ProjectFiles, agent: AgentView) -> str:
    folder = project.root / AGENTS
    paths = [folder / f"{agent.id}{suffix}" for suffix in (".md", ".yaml", ".yml")]
    path = next((each for each in paths if each.exists()), paths[0])
    path.write_text(agent_markdown(agent.spec) if path.suffix == ".md" else agent_yaml(agent.spec), encoding="utf-8")
    return f"{AGENTS}/{path.name}"


def _write_skill(project: ProjectFiles, skill: SkillDetail, files: list[SkillFileContent]) -> None:
    folder = project.root / SKILLS
    if (folder / skill.name).is_dir():
        shutil.rmtree(folder / skill.name)
    write_skill(folder, skill, files)


def _write_triggers(project: ProjectFiles, triggers: dict[str, TriggerView]) -> None:
    values = {
        each.key: each.model_dump(mode="json", exclude_defaults=True, exclude={"key"}) for each in project.triggers
    }
    values |= {key: trigger_values(trigger) for key, trigger in triggers.items()}
    (project.root / TRIGGERS).write_text(triggers_yaml(values), encoding="utf-8")
