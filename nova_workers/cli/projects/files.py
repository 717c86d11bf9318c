"""Reads the files of a project. Every mistake is reported, each with its file and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.validation import place_of, problem_of
from nova_workers.cli.projects.gates import EVALUATIONS, AgentGate
from nova_workers.cli.projects.marked_yaml import MarkedYaml, read_yaml
from nova_workers.cli.workspace.skill_directories import read_skill
from nova_workers.contracts.http.projects import (
    ProjectAgent,
    ProjectApply,
    ProjectName,
    ProjectSkill,
    ProjectTrigger,
)
from nova_workers.contracts.skills import SKILL_MD

PYPROJECT: Final = "pyproject.toml"
AGENTS: Final = "agents"
SKILLS: Final = "skills"
TRIGGERS: Final = "triggers.yaml"

_FRONT = re.compile(r"\A\ufeff?---[ \t]*(\r?\n)(.*?)^---[ \t]*(?:\1|\Z)", re.DOTALL | re.MULTILINE)
_NAME: TypeAdapter[str] = TypeAdapter(ProjectName)
_FROM_FILE: Final = {"id": "its file is named after it", "key": "it is the key above"}


@dataclass(slots=True)
class ProjectFiles:
    """A project as its files have it.

    Attributes:
        root: Its folder.
        name: Of the project.
        gates: By agent, what its changes must pass before they are applied.
        problems: Each with file and line; nothing is applied while there is one.
    """

    root: Path
    name: str
    agents: list[ProjectAgent] = field(default_factory=list[ProjectAgent])
    skills: list[ProjectSkill] = field(default_factory=list[ProjectSkill])
    triggers: list[ProjectTrigger] = field(default_factory=list[ProjectTrigger])
    gates: dict[str, AgentGate] = field(default_factory=dict[str, AgentGate])
    problems: list[str] = field(default_factory=list[str])
    _sources: dict[tuple[str, str], tuple[str, MarkedYaml, tuple[str, ...]]] = field(
        default_factory=dict[tuple[str, str], tuple[str, MarkedYaml, tuple[str, ...]]]
    )

    def request(self, **more: Any) -> ProjectApply:
        """Return the request that plans or applies it.

        Args:
            more: Of the request, beside the project's items.

        Raises:
            InvalidInput: There are problems; all of them.
        """
        if self.problems:
            raise InvalidInput("\n".join(self.problems))
        return ProjectApply(
            project=self.name,
            agents=tuple(self.agents),
            skills=tuple(self.skills),
            triggers=tuple(self.triggers),
            **more,
        )

    def place_of(self, field_name: str) -> str | None:
        """Return the file and line of a field that the fleet names, such as ``agents.support.trust``."""
        kind, _, rest = field_name.partition(".")
        for (each_kind, name), (file, marked, prefix) in self._sources.items():
            if each_kind == kind and (rest == name or rest.startswith(f"{name}.")):
                inner = rest[len(name) + 1 :]
                return f"{file}:{marked.line_of((*prefix, *inner.split('.')) if inner else prefix)}"
        return None

    def has(self, kind: str, name: str) -> bool:
        """Return whether an item was read."""
        return (kind, name) in self._sources

    def note(self, kind: str, name: str, file: str, marked: MarkedYaml, prefix: tuple[str, ...] = ()) -> None:
        """Keep where an item is."""
        self._sources[kind, name] = (file, marked, prefix)


def find_root(directory: Path) -> Path:
    """Return the folder of the project that a directory is in.

    Raises:
        InvalidInput: It is in none.
    """
    for candidate in (directory.resolve(), *directory.resolve().parents):
        if (candidate / PYPROJECT).is_file() and (candidate / AGENTS).is_dir():
            return candidate
    raise InvalidInput(
        f"{str(directory)!r} is in no project: there is no folder above it with {PYPROJECT} and {AGENTS}/. "
        "Make one with `nova init NAME`."
    )


def read_project(root: Path) -> ProjectFiles:
    """Read a project's files.

    Raises:
        InvalidInput: `pyproject.toml` does not name the project. All other problems are in the result.
    """
    project = ProjectFiles(root, _project_name(root / PYPROJECT))
    for path in sorted((root / AGENTS).glob("*")):
        if path.suffix in {".yaml", ".yml", ".md"} and not path.name.startswith("."):
            with _Noting(project):
                _read_agent(project, path)
    for path in sorted((root / SKILLS).glob("*")):
        if path.is_dir() and not path.name.startswith("."):
            with _Noting(project, f"{path.relative_to(root).as_posix()}/{SKILL_MD}:1: "):
                name, skill, _ = read_skill(path)
                project.skills.append(ProjectSkill(name=name, skill_md=skill.skill_md, files=skill.files))
                project.note(SKILLS, name, f"{SKILLS}/{name}/{SKILL_MD}", MarkedYaml(None, {}))
    if (root / TRIGGERS).is_file():
        with _Noting(project):
            _read_triggers(project, root / TRIGGERS)
    if (root / EVALUATIONS).is_file():
        with _Noting(project):
            _read_gates(project, root / EVALUATIONS)
    return project


class _Noting:
    """Adds what is wrong with a file to the problems of its project."""

    def __init__(self, project: ProjectFiles, place: str = "") -> None:
        self._project = project
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, InvalidInput):
            return False
        self._project.problems.append(f"{self._place}{error.message}")
        return True


def _project_name(path: Path) -> str:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path.name}: it cannot be read: {error}") from error
    own: Any = document.get("tool", {}).get("nova", {})
    name = own.get("project") or document.get("project", {}).get("name")
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        raise InvalidInput(
            f"{path.name}: the project's name is {name!r}; give one of lower case letters, digits and hyphens as "
            "`name` of [project], or as `project` of [tool.nova]."
        ) from error


def _read_agent(project: ProjectFiles, path: Path) -> None:
    file, text = path.relative_to(project.root).as_posix(), _text(path)
    if path.suffix == ".md":
        front = _FRONT.match(text)
        if front is None:
            raise InvalidInput(
                f"{file}:1: it begins with front matter: a line of three dashes, the agent's fields in YAML, and "
                "another line of three dashes. What follows is its instructions."
            )
        line_end, fields = front.groups()
        marked = read_yaml(fields, file=file, first_line=2)
        values = _mapping(marked, file)
        if "instructions" in values:
            line = marked.line_of(("instructions",))
            raise InvalidInput(f"{file}:{line}: instructions: they are the text below the front matter.")
        # White space that they begin or end with is theirs, so that a file holds what the fleet has.
        values |= {"instructions": text[front.end() :].removeprefix(line_end).removesuffix(line_end)}
    else:
        marked = read_yaml(text, file=file)
        values = _mapping(marked, file)
    agent_id = path.stem
    if project.has(AGENTS, agent_id):
        raise InvalidInput(f"{file}:1: the agent {agent_id!r} has another file already.")
    project.agents.append(_checked(ProjectAgent, {"id": agent_id}, values, file, marked))
    project.note(AGENTS, agent_id, file, marked)


def _read_triggers(project: ProjectFiles, path: Path) -> None:
    marked = read_yaml(_text(path), file=TRIGGERS)
    for key, values in _mapping(marked, TRIGGERS).items():
        with _Noting(project):
            if not isinstance(values, dict):
                raise InvalidInput(f"{TRIGGERS}:{marked.line_of((key,))}: {key}: a trigger is a mapping of its fields.")
            project.triggers.append(_checked(ProjectTrigger, {"key": key}, values, TRIGGERS, marked, (key,)))
            project.note("triggers", key, TRIGGERS, marked, (key,))


def _read_gates(project: ProjectFiles, path: Path) -> None:
    marked = read_yaml(_text(path), file=EVALUATIONS)
    for agent_id, values in _mapping(marked, EVALUATIONS).items():
        with _Noting(project):
            place = f"{EVALUATIONS}:{marked.line_of((agent_id,))}: {agent_id}"
            if not isinstance(values, dict):
                raise InvalidInput(f"{place}: an evaluation is a mapping of its fields.")
            if not project.has(AGENTS, agent_id):
                raise InvalidInput(f"{place}: the project has no such agent.")
            project.gates[agent_id] = _checked(AgentGate, {}, values, EVALUATIONS, marked, (agent_id,))


def _checked(
    model: type[Any],
    named: Mapping[str, str],
    values: Mapping[str, Any],
    file: str,
    marked: MarkedYaml,
    prefix: tuple[str, ...] = (),
) -> Any:
    for name in named:
        if name in values:
            line = marked.line_of((*prefix, name))
            raise InvalidInput(f"{file}:{line}: {name}: leave it out, since {_FROM_FILE[name]}.")
    try:
        return model.model_validate({**values, **named})
    except ValidationError as error:
        raise InvalidInput("\n".join(_problems(error, model, file, marked, prefix))) from error


def _problems(
    error: ValidationError, model: type[BaseModel], file: str, marked: MarkedYaml, prefix: tuple[str, ...]
) -> Iterator[str]:
    for item in error.errors(include_url=False):
        place = tuple(str(part) for part in item["loc"])
        shown = "" if item["type"] in {"missing", "extra_forbidden"} else f" (got {item['input']!r:.80})"
        name = place_of(item)
        yield f"{file}:{marked.line_of((*prefix, *place))}: {name and f'{name}: '}{problem_of(item, model)}{shown}."


def _mapping(marked: MarkedYaml, file: str) -> dict[str, Any]:
    if marked.value is None:
        return {}
    if not isinstance(marked.value, dict):
        raise InvalidInput(f"{file}:{marked.line_of(())}: it is not a mapping of names to values.")
    return {str(name): value for name, value in marked.value.items()}


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path.name}:1: it cannot be read: {error}.") from error
