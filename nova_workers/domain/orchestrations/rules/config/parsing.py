"""Makes a configuration of its text, and of the ``models.yaml`` beside it; or says everything that is wrong. Pure."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.validation import problem_of
from nova_workers.domain.orchestrations.rules.config.aliases import Resolution, nearest, resolve_models
from nova_workers.domain.orchestrations.rules.config.reading import Located, Path, Problem, read_yaml
from nova_workers.domain.orchestrations.rules.config.values import (
    BUILT_IN_PROVIDERS,
    ConfigDocument,
    ModelsDocument,
    OrchestrationConfig,
    ResolvedModel,
)

CONFIG_FILE: Final = "orchestration.yaml"
MODELS_FILE: Final = "models.yaml"

_MAX_PROBLEMS: Final = 100
_DEFAULT_MODELS: Final = ("model", "peer_model", "master_model", "judge_model")
"""Fields of `defaults` that name a model."""
_KEY: Final = "[key]"
"""What pydantic puts after the key of a mapping that has the wrong form."""

D = TypeVar("D", bound=ModelsDocument)


def parse_config(
    text: str,
    models_text: str = "",
    *,
    known: Mapping[str, ResolvedModel] | None = None,
    file: str = CONFIG_FILE,
    models_file: str = MODELS_FILE,
) -> OrchestrationConfig:
    """Return the configuration that two files make. Entries of the first win over those of the second.

    Args:
        text: The configuration. An empty one has the defaults.
        models_text: What is in ``models.yaml``: the sections `models` and `model_registry` only.
        known: Names of models that need no alias.
        file: What errors call the first file.
        models_file: What errors call the second file.

    Raises:
        InvalidInput: Something is wrong. The message has one line for each problem; ``fields['errors']`` has each with
            its `file`, `line`, `column`, `field` and `message`.
    """
    main = _read(text, file, ConfigDocument)
    beside = _read(models_text, models_file, ModelsDocument)
    problems = [*main.problems, *beside.problems]
    config, wrong = _merge(main, beside, known or {})
    problems += wrong
    if problems:
        raise _refusal(problems)
    return config


@dataclass(frozen=True, slots=True)
class _File(Generic[D]):
    """A file's value without its wrong entries."""

    located: Located
    document: D
    problems: list[Problem] = field(default_factory=list[Problem])
    unreadable: frozenset[Path] = frozenset()
    """Paths of the entries and sections that were left out."""

    def lacks(self, section: str) -> bool:
        """Return whether a section, or the whole file, could not be read."""
        return (section,) in self.unreadable or () in self.unreadable

    def names(self, section: str) -> Iterator[str]:
        """Yield the names of entries of a section that were left out."""
        return (str(path[1]) for path in self.unreadable if len(path) == 2 and path[0] == section)


def _read(text: str, file: str, kind: type[D]) -> _File[D]:
    located, problems = read_yaml(text, file)
    if problems:
        return _File(located, kind(), problems, frozenset({()}))
    # A section without anything below it.
    value = {name: section for name, section in located.value.items() if section is not None}
    try:
        return _File(located, kind.model_validate(value))
    except ValidationError as error:
        items = error.errors(include_url=False)
        problems = [_problem(located, item, kind) for item in items]
        unreadable = frozenset(_entry(item["loc"]) for item in items)
        return _File(located, _without(kind, value, unreadable), problems, unreadable)


def _problem(located: Located, item: Mapping[str, Any], kind: type[ModelsDocument]) -> Problem:
    path: Path = tuple(item["loc"])
    if path[-1:] == (_KEY,):
        return located.problem(path[:-1], f"the name {path[-2]!r}: {problem_of(item, kind)}", of_key=True)
    return located.problem(path, problem_of(item, kind), of_key=item["type"] == "extra_forbidden")


def _entry(path: Path) -> Path:
    """Return the smallest part of a file that can be left out because of an error: an entry of a section."""
    return path[:2]


def _without(kind: type[D], value: dict[str, Any], unreadable: frozenset[Path]) -> D:
    kept = deepcopy(value)
    for path in unreadable:
        if len(path) == 1:
            kept.pop(str(path[0]), None)
        elif path and isinstance(section := kept.get(str(path[0])), dict):
            section.pop(path[1], None)
    return kind.model_validate(kept)


def _merge(
    main: _File[ConfigDocument], beside: _File[ModelsDocument], known: Mapping[str, ResolvedModel]
) -> tuple[OrchestrationConfig, list[Problem]]:
    document = main.document
    aliases = {**beside.document.models, **document.models}
    registry = {**beside.document.model_registry, **document.model_registry}
    providers = {**BUILT_IN_PROVIDERS, **document.providers}
    resolution = resolve_models(
        aliases,
        registry,
        known=known,
        providers={*providers, *main.names("providers")},
        unreadable={*main.names("models"), *beside.names("models")},
    )
    problems: list[Problem] = []
    if not (main.lacks("models") or main.lacks("model_registry") or beside.lacks("models")):
        problems = [_origin(path, main, beside).problem(path, wrong) for path, wrong in resolution.complaints]
        problems += _unresolved(main, beside, resolution)
    experts = {
        expert_id: expert.model_copy(update={"expert_id": expert_id, "name": expert.name or expert_id})
        for expert_id, expert in document.experts.items()
    }
    config = OrchestrationConfig(
        engine=document.engine,
        providers=providers,
        models=resolution.models,
        defaults=document.defaults,
        experts=experts,
        plugins=document.plugins,
        capability_profiles=document.capability_profiles,
        model_registry=registry,
    )
    return config, problems


def _origin(path: Path, main: _File[ConfigDocument], beside: _File[ModelsDocument]) -> Located:
    """Return the file that an entry is from."""
    return main.located if path[:2] in main.located.values else beside.located


def _unresolved(
    main: _File[ConfigDocument], beside: _File[ModelsDocument], resolution: Resolution
) -> Iterator[Problem]:
    """Yield names of models, of experts and defaults, that stand for nothing."""
    reported = {str(path[1]) for path, _ in resolution.complaints}
    there = {*resolution.models, *main.document.models, *beside.document.models, *reported}
    there |= {*main.names("models"), *beside.names("models"), *main.names("model_registry")}
    for path, name in _named(main.located.value):
        if name not in there:
            hint = nearest(name, there) or "; add it to the section `models`"
            yield main.located.problem(path, f"there is no model or alias {name!r}{hint}")


def _named(value: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the names of models in defaults and experts, also of those with other errors."""
    places: list[tuple[Path, Any]] = []
    if isinstance(defaults := value.get("defaults"), dict):
        places += [(("defaults", name), defaults.get(name)) for name in _DEFAULT_MODELS]
        if isinstance(peers := defaults.get("peer_models"), list):
            places += [(("defaults", "peer_models", index), name) for index, name in enumerate(peers)]
    if isinstance(experts := value.get("experts"), dict):
        places += [
            (("experts", expert_id, "model"), expert.get("model"))
            for expert_id, expert in experts.items()
            if isinstance(expert, dict)
        ]
    return ((path, name) for path, name in places if isinstance(name, str))


def _refusal(problems: list[Problem]) -> InvalidInput:
    ordered = sorted(problems, key=lambda each: (each.file, each.position.line, each.position.column))
    shown = ordered[:_MAX_PROBLEMS]
    lines = [str(each) for each in shown]
    if len(ordered) > len(shown):
        lines.append(f"and {len(ordered) - len(shown)} more")
    count = "1 error" if len(ordered) == 1 else f"{len(ordered)} errors"
    return InvalidInput(
        "\n".join([f"The configuration of orchestrations has {count}:", *lines]),
        errors=[
            {
                "field": each.path,
                "message": each.message,
                "file": each.file,
                "line": each.position.line,
                "column": each.position.column,
            }
            for each in shown
        ],
    )
