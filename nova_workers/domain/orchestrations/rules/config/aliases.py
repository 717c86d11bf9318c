"""Resolves names of models: aliases, aliases of aliases, and models that are known. Pure."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nova_workers.domain.orchestrations.rules.config.reading import Path
from nova_workers.domain.orchestrations.rules.config.values import ModelAlias, ModelOverride, ResolvedModel

_MAX_CHAIN: Final = 20
"""Aliases from a name to its model."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What names stand for.

    Attributes:
        models: Every name that has a meaning.
        complaints: What is wrong, each with its path in the configuration.
    """

    models: dict[str, ResolvedModel] = field(default_factory=dict[str, ResolvedModel])
    complaints: list[tuple[Path, str]] = field(default_factory=list[tuple[Path, str]])


def resolve_models(
    aliases: Mapping[str, ModelAlias],
    registry: Mapping[str, ModelOverride],
    *,
    known: Mapping[str, ResolvedModel],
    providers: Collection[str],
    unreadable: Collection[str] = (),
) -> Resolution:
    """Return the models that the names of a configuration stand for.

    Args:
        aliases: The section `models`.
        registry: The section `model_registry`; its models that are not known need a provider.
        known: Models and names that need no configuration. An alias of the same name takes its place.
        providers: The names of providers.
        unreadable: Names of aliases with other errors; what refers to them is not reported again.
    """
    resolver = _Resolver(aliases, providers, unreadable, dict(known))
    for model_id, override in registry.items():
        resolver.add_registered(model_id, override.provider)
    resolver.freeze()
    for name in aliases:
        resolver.add_alias(name)
    return Resolution(resolver.models, resolver.complaints)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for the reader of an error: ``; did you mean 'opus'?``, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class _Resolver:
    def __init__(
        self,
        aliases: Mapping[str, ModelAlias],
        providers: Collection[str],
        unreadable: Collection[str],
        known: dict[str, ResolvedModel],
    ) -> None:
        self._aliases = aliases
        self._providers = providers
        self._unreadable = unreadable
        self._known: Mapping[str, ResolvedModel] = known
        self._order = {name: at for at, name in enumerate(aliases)}
        self.models = dict(known)
        self.complaints: list[tuple[Path, str]] = []

    def freeze(self) -> None:
        """Take the models so far as those that aliases may name."""
        self._known = dict(self.models)

    def add_registered(self, model_id: str, provider: str | None) -> None:
        path: Path = ("model_registry", model_id)
        if provider is None:
            named = model_id in self.models or model_id in self._aliases
            if not named and all(alias.model_id != model_id for alias in self._aliases.values()):
                self._complain(path, "no provider is known for this model; add `provider`")
        elif provider not in self._providers:
            self._complain_of_provider((*path, "provider"), provider)
        else:
            self.models[model_id] = ResolvedModel(provider=provider, model_id=model_id)

    def add_alias(self, name: str) -> None:
        """Follow an alias to its model. An error is reported with the alias that contains it, not with those before."""
        self.models.pop(name, None)
        chain = [name]
        effort = None
        while True:
            entry = self._aliases[chain[-1]]
            effort = effort or entry.reasoning_effort
            found = self._model_of(chain[-1], entry)
            if found is not None:
                break
            if entry.model_id in chain or entry.model_id not in self._aliases or len(chain) == _MAX_CHAIN:
                self._complain_of_chain(chain, entry.model_id)
                return
            chain.append(entry.model_id)
        if found.provider in self._providers:
            self.models[name] = found.model_copy(update={"reasoning_effort": effort or found.reasoning_effort})
        elif len(chain) == 1:
            self._complain_of_provider(("models", name, "provider"), found.provider)

    def _model_of(self, name: str, entry: ModelAlias) -> ResolvedModel | None:
        """Return the model that an entry names itself, or None if it names another alias."""
        if entry.provider is not None:
            return ResolvedModel(provider=entry.provider, model_id=entry.model_id)
        is_alias = entry.model_id in self._aliases and entry.model_id != name
        return None if is_alias else self._known.get(entry.model_id)

    def _complain_of_chain(self, chain: list[str], target: str) -> None:
        name, path = chain[0], ("models", chain[0])
        if target in chain:
            # A cycle is reported once, with the first of its aliases.
            if target == name == min(chain, key=self._order.__getitem__):
                self._complain(path, f"it stands for itself: {' → '.join([*chain, target])}")
        elif target in self._aliases:
            self._complain(path, f"it leads through more than {_MAX_CHAIN} aliases; name a model itself")
        elif len(chain) == 1 and target not in self._unreadable:
            hint = nearest(target, {*self._aliases, *self._known} - {name}) or "."
            self._complain(
                path,
                f"there is no model or alias {target!r}{hint} If it is a model's id, add the `provider` that has it",
            )

    def _complain(self, path: Path, message: str) -> None:
        self.complaints.append((path, message))

    def _complain_of_provider(self, path: Path, name: str) -> None:
        hint = nearest(name, self._providers) or "."
        known = ", ".join(sorted(self._providers))
        self._complain(path, f"there is no provider {name!r}{hint} The providers are: {known}")
