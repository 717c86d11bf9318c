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
optional-dependencies.dev = ["nova-workers[testing]"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

_AGENT = """\
---
# yaml-language-server: $schema=../schemas/agent.json
name: Assistant
description: Answers questions about {name}.
skills: [style]
capabilities:
  notes: {{}}
  # The tools of tools/, on a fleet whose operator has installed this project, as `nova dev` does:
  # project:{name}: {{}}
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

_TOOLS = """\
from nova_workers.sdk import ToolFailure, tool


@tool(read_only=True)
def stock(article: str) -> int:
    \"""Count how many of an article there are.

    Args:
        article: Its number, such as "B-114".
    \"""
    if not article.startswith("B-"):
        raise ToolFailure(f"There is no article {article!r}; numbers begin with B-.")
    return 3
"""

_CODE = """\
from nova_workers.sdk import Context, Message, agent


@agent
async def triage(ctx: Context, message: Message) -> str:
    \"""Sort a message, and answer it.\"""
    kind = await ctx.model(message.text, system="Answer with one word: order, complaint or other.", name="sort")
    if kind.text == "other":
        return "You will get an answer by mail."
    return (await ctx.model(message.text, system=f"Answer this {kind.text} briefly.", name="answer")).text
"""

_CONFTEST = """\
pytest_plugins = ["nova_workers.sdk.testing"]
"""

_TESTS = """\
import pytest

from nova_workers.sdk import ToolFailure
from tools.articles import stock


def test_the_assistant_keeps_a_note_and_answers(model, run, transcript):
    model.calls("note_create", title="Opening hours", content="From 9 to 5.").says("It is noted.")
    ended = run("assistant", "We open at 9 and close at 5.")
    assert ended.text == "It is noted."
    assert [entry.tool for entry in transcript(ended) if entry.kind == "call"] == ["note_create"]


def test_the_summary_comes_on_mondays(model, clock):
    assert {time.isoweekday() for time in clock.next_times("weekly-summary")} == {1}
    model.says("Nothing happened.")
    assert clock.fire("weekly-summary").text == "Nothing happened."


def test_an_article_has_a_number():
    assert stock("B-114") == 3
    with pytest.raises(ToolFailure, match="numbers begin with B-"):
        stock("114")
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

Agents, skills and triggers of a fleet of Nova Workers, with tools and agents in Python.

    nova dev      # the fleet on this machine with them, applied at each change
    pytest        # tests/, with a model that they script
    nova plan     # what would change on the fleet
    nova apply    # change it
    nova pull     # take over what was changed there

`nova chat --agent assistant` talks with the agent.
"""

_GITIGNORE = """\
.venv/
__pycache__/
dist/
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
        "tools/articles.py": _TOOLS,
        "code/triage.py": _CODE,
        "tests/conftest.py": _CONFTEST,
        "tests/test_assistant.py": _TESTS,
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
