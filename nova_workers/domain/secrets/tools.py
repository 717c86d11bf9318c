"""The `secrets` capability: values that an agent uses, redacted from everything stored or shown."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from nova_workers.base.errors import Forbidden
from nova_workers.base.field_docs import DescribedFields
from nova_workers.base.observability.redaction import current_redactor
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.authors.rights import SECRET_NAMES, authored
from nova_workers.contracts.http.secrets import MAX_SECRET_BYTES, SecretName
from nova_workers.domain.capabilities.rules.seam import (
    CapabilityContext,
    CapabilityParts,
    Revealed,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.secrets.rules.service import MAX_SECRETS, Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.database import Connection

_GET = "secret_get"
"""The tool that gives the model values."""

_Pattern = Annotated[str, StringConstraints(pattern=r"^[A-Z*?][A-Z0-9_*?]{0,63}$")]


@authored(
    names=SECRET_NAMES,
)
class _Config(DescribedFields, TrueNumbers):
    """The secrets that an agent may use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: Annotated[tuple[_Pattern, ...], Field(min_length=1, max_length=100)] = ("*",)
    """Names, or patterns of names: ``*`` is any text, ``?`` any character."""

    def covers(self, name: str) -> bool:
        """Return whether a name is among them."""
        return any(fnmatchcase(name, pattern) for pattern in self.names)

    def includes(self, other: "_Config") -> bool:
        """Return whether each name that another one covers is among them."""
        return all(any(_is_within(theirs, ours) for ours in self.names) for theirs in other.names)


class _Get(ToolInput):
    name: Annotated[SecretName, Field(description="As secret_list gives it.")]


class _List(ToolInput):
    pass


class _Update(ToolInput):
    name: Annotated[SecretName, Field(description="Capital letters, digits and underscores, such as GITHUB_TOKEN.")]
    value: Annotated[str, Field(description="The new value, whole.", min_length=1, max_length=MAX_SECRET_BYTES)]
    description: Annotated[str | None, Field(description="What it is for.", max_length=500)] = None


class _SecretTools:
    """Registers each value with the run's redactor before it is returned."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name=_GET,
                description=(
                    "Read a secret, to use it in a tool call. It is taken out of everything that is kept: where you "
                    "see [secret:NAME] in an earlier message and need the value, read it again. Tell it to nobody."
                ),
                input=_Get,
                run=self._get,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="secret_list",
                description="Look at which secrets there are, without their values.",
                input=_List,
                run=self._list,
                idempotent=True,
                read_only=True,
            ),
            # Not idempotent: the journal has no values, so an interrupted call cannot be repeated.
            ToolDeclaration(
                name="secret_update",
                description="Give a secret a new value, or make one.",
                input=_Update,
                run=self._update,
                takes_secrets=("value",),
            ),
        )

    async def _get(self, context: CapabilityContext, given: _Get) -> str:
        _require(context, given.name)
        value = await self._secrets.get(context.tenant_id, given.name)
        _learn(given.name, value, readable=True)
        return value

    async def _list(self, context: CapabilityContext, given: _List) -> str:
        config = _config(context)
        views = await self._secrets.list(context.tenant_id, after=None, limit=MAX_SECRETS)
        lines = [f"{view.name}: {view.description or '(no description)'}" for view in views if config.covers(view.name)]
        return "\n".join(lines) or "There are no secrets that you may use."

    async def _update(self, context: CapabilityContext, given: _Update) -> str:
        _require(context, given.name)
        _learn(given.name, given.value, readable=False)
        await self._secrets.put(
            context.tenant_id, given.name, given.value, by=context.agent_id, description=given.description
        )
        _learn(given.name, given.value, readable=True)
        return f"Set {given.name}."


class _SecretsCapability(ToolCapability):
    """Its tools, and the secrets that they can bring into a run."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__(
            "secrets",
            "Values such as keys and passwords, encrypted, and kept out of everything that is shown or stored.",
            _SecretTools(secrets).declare(),
            config=_Config,
        )
        self._secrets = secrets

    async def revealed(
        self, connection: Connection, tenant_id: str, config: BaseModel, tools: Sequence[str] | None
    ) -> Revealed:
        """Return the secrets that the grant covers."""
        assert isinstance(config, _Config)  # noqa: S101 - narrows the type; the registry parses it as this class
        values = await self._secrets.readable(connection, tenant_id)
        covered = {name: value for name, value in values.items() if config.covers(name)}
        return Revealed(covered, readable=tools is None or _GET in tools)


def _is_within(theirs: str, ours: str) -> bool:
    """Return whether each name that fits a pattern fits another: ``*`` is within ``*``, ``?`` also within ``?``."""
    form = "".join({"*": ".*", "?": r"[^*]"}.get(character, re.escape(character)) for character in ours)
    return re.fullmatch(form, theirs) is not None


def _config(context: CapabilityContext) -> _Config:
    assert isinstance(context.config, _Config)  # noqa: S101 - as above
    return context.config


def _require(context: CapabilityContext, name: str) -> None:
    config = _config(context)
    if not config.covers(name):
        raise Forbidden(f"You may use the secrets {', '.join(config.names)}; {name!r} is none of them.")


def _learn(name: str, value: str, *, readable: bool) -> None:
    redactor = current_redactor()
    if redactor is not None:
        redactor.learn(name, value, readable=readable)


def capability(parts: CapabilityParts) -> ToolCapability:
    """Return the capability."""
    return _SecretsCapability(Secrets(parts.database, Vault.of(parts.settings.secrets.source)))
