"""The capabilities of code of users: one for each project of a tenant, and one for each installed module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import structlog
from pydantic import BaseModel, ConfigDict, Field

from nova_workers.base.errors import InvalidInput, NotFound
from nova_workers.base.field_docs import DescribedFields
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.authors.rights import SECRET_NAMES, authored
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.secrets import SecretName
from nova_workers.contracts.installs import InstalledCode
from nova_workers.contracts.native import TAKEN_NAMES
from nova_workers.contracts.tool_programs import InstalledAgent, ToolSource
from nova_workers.contracts.user_tools import ListedTool, ToolListing
from nova_workers.domain.capabilities.rules.registry import CapabilityRegistry
from nova_workers.domain.capabilities.rules.seam import (
    CapabilityContext,
    CapabilityParts,
    Revealed,
    Servers,
    ToolDeclaration,
    ToolInput,
    ToolReply,
    UserServer,
)
from nova_workers.domain.capabilities.rules.user_listings import InstalledSource, installed_sources, read_listing
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.database import Connection

_log = structlog.get_logger(__name__)

_VERSION_CHARS: Final = 12


@authored(
    secrets=SECRET_NAMES,
)
class _Config(DescribedFields, TrueNumbers):
    """What tools of users get of the tenant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secrets: Annotated[tuple[SecretName, ...], Field(max_length=100)] = ()
    """The secrets that the tools may read, with ``ToolContext.secret``."""

    def includes(self, other: _Config) -> bool:
        """Return whether each secret of another one is among these."""
        return set(other.secrets) <= set(self.secrets)


class _UserCapability:
    """The tools and agents of one source."""

    config: type[BaseModel] = _Config
    injected = None

    def __init__(self, installed: InstalledSource, listing: ToolListing, secrets: Secrets) -> None:
        source = installed.source
        self.name = source.name
        self.description = _describe(source, listing)
        self.tools: tuple[ToolDeclaration[Any], ...] = tuple(map(_declare, listing.tools))
        self.tenant_id = source.tenant_id
        self._source = source
        self._release = installed.release
        self._version = (installed.digest or "")[:_VERSION_CHARS]
        self._listing = listing
        self._secrets = secrets

    def check_grant(self, config: BaseModel, field: str) -> None:
        """Refuse tools that cannot be used, when they are granted and when they are to be called."""
        del config
        if self._listing.problem is not None:
            capability = field.removesuffix(".config")
            raise InvalidInput(f"{capability}: its tools cannot be used. {self._listing.problem}", field=capability)

    @property
    def installed(self) -> InstalledCode:
        """What a worker says of it."""
        listing = self._listing
        return InstalledCode(
            name=self.name,
            version=self._release,
            code=self._version,
            tools=tuple(tool.name for tool in listing.tools),
            agents=tuple(agent.name for agent in listing.agents),
            evaluators=tuple(each.name for each in listing.evaluators),
            problem=listing.problem,
        )

    async def revealed(
        self, connection: Connection, tenant_id: str, config: BaseModel, tools: Sequence[str] | None
    ) -> Revealed:
        """Return the secrets that the tools get: one may return one."""
        names = _given(config).secrets
        values = await self._secrets.readable(connection, tenant_id, names) if names else {}
        return Revealed(values, readable=False)

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the server of one run."""
        if self.tenant_id not in (None, context.tenant_id):
            # As if there were none, which is what its authors see.
            raise InvalidInput(
                f"capabilities.{self.name}: there is no capability {self.name!r}.", field=f"capabilities.{self.name}"
            )
        return UserServer(
            self._source, self._listing.tools, context, await self.agent_secrets(config, context.tenant_id)
        )

    async def agent_secrets(self, config: BaseModel, tenant_id: str) -> Mapping[str, str]:
        """Return the secrets that a grant names."""
        try:
            return await self._secrets.require(tenant_id, _given(config).secrets)
        except NotFound as error:
            raise InvalidInput(
                f"capabilities.{self.name} needs what is not there. {error.message}", **error.fields
            ) from error

    def agent(self, function: str, field: str) -> InstalledAgent:
        """Return an agent of this code."""
        problem = self._listing.problem
        names = [agent.name for agent in self._listing.agents]
        if problem is None and function not in names:
            problem = f"There is no agent {function!r} in it; there are: {', '.join(names) or 'none'}."
        if problem is not None:
            raise InvalidInput(f"{field}: the code of {self.name} cannot be used. {problem}", field=field)
        return InstalledAgent(self._source, function, self._version)

    def evaluator(self, function: str) -> tuple[ToolSource, ListedTool] | None:
        """Return an evaluator of this code."""
        found = next((each for each in self._listing.evaluators if each.name == function), None)
        return None if found is None or self._listing.problem is not None else (self._source, found)


def capabilities(parts: CapabilityParts, registry: CapabilityRegistry) -> Iterator[_UserCapability]:
    """Yield the capability of each source. What is wrong with one is refused where it is granted, and no earlier.

    Args:
        parts: The dependencies.
        registry: Has all capabilities of the fleet, whose names these cannot have.
    """
    secrets = Secrets(parts.database, Vault.of(parts.settings.secrets.source))
    for installed in installed_sources(parts.settings):
        source = installed.source
        if registry.config_type(source.name) is not None:
            _log.error("tools_not_installed", name=source.name, cause="another capability has this name")
            continue
        listing = (
            ToolListing(problem=installed.problem)
            if installed.problem is not None
            else read_listing(source, installed.digest, parts.settings.home / "tools")
        )
        problem = listing.problem or next(
            (
                f"{tool.place}: the name {tool.name!r} is that of another tool of this fleet; expected one of its own."
                for tool in listing.tools
                if tool.name in TAKEN_NAMES or registry.has_tool(tool.name)
            ),
            None,
        )
        if problem is not None:
            _log.error("tools_cannot_be_used", name=source.name, cause=problem)
            listing = ToolListing(problem=problem)
        yield _UserCapability(installed, listing, secrets)


def _describe(source: ToolSource, listing: ToolListing) -> str:
    if listing.problem is not None:
        return f"Code in Python, which cannot be used. {listing.problem}"
    kind = "module" if source.folder is None else "project"
    return f"Tools in Python, of the {kind} {source.name.removeprefix('project:')!r}."


def _declare(tool: ListedTool) -> ToolDeclaration[Any]:
    return ToolDeclaration(
        name=tool.name,
        description=tool.description,
        input=_input(tool.input_schema),
        run=_elsewhere,
        idempotent=tool.idempotent,
        read_only=tool.read_only,
        needs_approval=tool.needs_approval,
    )


def _input(schema: JsonObject) -> type[ToolInput]:
    """Return a model with a schema that is known. The process of the tool checks the input."""

    class Given(ToolInput):
        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> JsonObject:
            return dict(schema)

    return Given


async def _elsewhere(_: CapabilityContext, __: ToolInput) -> ToolReply:
    raise NotImplementedError("A tool of users runs in a process of its own, by way of a `UserServer`.")


def _given(config: BaseModel) -> _Config:
    assert isinstance(config, _Config)  # noqa: S101 - narrows the type; the registry parses it as this class
    return config
