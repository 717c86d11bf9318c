"""Makes the files of a new project."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from nova_workers.base.errors import Conflict, InvalidInput
from nova_workers.cli.projects.files import AGENTS, PYPROJECT, SKILLS, TRIGGERS
from nova_workers.cli.projects.writing import SCHEMAS
from nova_workers.contracts.http.projects import ProjectAgent, ProjectName, ProjectTrigger
from nova_workers.contracts.skills import SKILL_MD

_NAME: TypeAdapter[str] = TypeAdapter(ProjectName)

_PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
"""

_AGENT = """\
---
# yaml-language-server: $schema=../schemas/agent.json
name: Assistant
description: Answers questions about {name}.
skills: [style]
capabilities:
  notes: {{}}
---
Answer in a few sentences. Keep what will be needed again in a note.
"""

_SKILL = """\
---
name: style
description: How answers are written. Use it before every longer answer.
---
Begin with the answer itself. Use short sentences, and no more than one list.
"""

_TRIGGERS = """\
# yaml-language-server: $schema=schemas/triggers.json
weekly-summary:
  agent_id: assistant
  kind: cron
  schedule: 0 9 * * 1
  prompt: Sum up last week's notes.
  # Remove this line to have it fire.
  enabled: false
"""

_README = """\
# {name}

Agents, skills and triggers of a fleet of Nova Workers.

    nova plan     # what would change on the fleet
    nova apply    # change it
    nova pull     # take over what was changed there

`nova chat --agent assistant` talks with the agent.
"""

_GITIGNORE = """\
.venv/
__pycache__/
"""


@dataclass(frozen=True, slots=True)
class NewProject:
    """A project that was made: its folder, and its files below it."""

    root: Path
    files: list[str]


def make_project(root: Path, name: str) -> NewProject:
    """Make a project whose files can be applied as they are.

    Raises:
        InvalidInput: The name cannot be a project's.
        Conflict: The folder exists.
    """
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        raise InvalidInput(
            f"{name!r} cannot be a project's name: it has at most 63 lower case letters, digits and hyphens, and "
            "begins with a letter or digit."
        ) from error
    files: Final = {
        PYPROJECT: _PYPROJECT.format(name=name),
        f"{AGENTS}/assistant.md": _AGENT.format(name=name),
        f"{SKILLS}/style/{SKILL_MD}": _SKILL,
        TRIGGERS: _TRIGGERS,
        **{f"{SCHEMAS}/{kind}.json": json.dumps(schema, indent=1) + "\n" for kind, schema in _schemas().items()},
        "README.md": _README.format(name=name),
        ".gitignore": _GITIGNORE,
    }
    try:
        root.mkdir()
    except FileExistsError as error:
        raise Conflict(f"{str(root)!r} exists already. Choose another name, or move it away.") from error
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return NewProject(root, list(files))


def _schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of the files: what the requests take, without the names that files have themselves."""
    agent, trigger = ProjectAgent.model_json_schema(), ProjectTrigger.model_json_schema()
    for schema, named in ((agent, "id"), (trigger, "key")):
        del schema["properties"][named]
        schema["required"].remove(named)
    definitions = trigger.pop("$defs", {})
    return {
        "agent": {"$schema": _DIALECT, **agent},
        "triggers": {
            "$schema": _DIALECT,
            "title": "Triggers by their keys",
            "type": "object",
            "additionalProperties": trigger,
            "$defs": definitions,
        },
    }


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
