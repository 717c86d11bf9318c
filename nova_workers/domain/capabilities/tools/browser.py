"""The `browser` capability: a web browser of the run's own, through the Playwright MCP server.

Each run has its own headless browser with an empty profile, which ends with the run. It can reach what its machine can
reach: the guard of the fleet's own requests does not apply to it.
"""

import shlex
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from nova_workers.base.errors import InvalidInput
from nova_workers.base.field_docs import DescribedFields
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.authors.rights import STEERS, authored
from nova_workers.contracts.engine import HttpMcpServer, StdioMcpServer
from nova_workers.domain.capabilities.rules.seam import Capability, CapabilityContext, CapabilityParts, Servers

_ALWAYS: Final = ("--headless", "--isolated")
_TIMEOUT_S: Final = 120.0
"""For the first start of a browser, and for slow pages."""

_Origin = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.*\[\]:-]+$", max_length=300)]


@authored(
    allowed_origins=STEERS,
)
class _Config(DescribedFields, TrueNumbers):
    """The permissions of a run's browser."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    allowed_origins: Annotated[tuple[_Origin, ...], Field(max_length=100)] = ()
    """Such as ``https://example.com``; the browser then requests no other. Empty allows all. Not for a browser behind a
    URL, which its operator starts."""

    def includes(self, other: "_Config") -> bool:
        """Return whether it reaches all origins that another one reaches."""
        few = set(self.allowed_origins)
        return not few or (bool(other.allowed_origins) and set(other.allowed_origins) <= few)


class _BrowserCapability:
    """Its tools are those of the operator's version of the Playwright server."""

    name = "browser"
    description = "A web browser: open pages, click, type, read, take pictures."
    config: type[BaseModel] = _Config
    tools: tuple[Any, ...] | None = None
    injected = None

    def __init__(self, command: str | None) -> None:
        self._command = command

    def check_grant(self, config: BaseModel, field: str) -> None:
        """Refuse a browser that the operator has not configured."""
        command = self._require(field)
        assert isinstance(config, _Config)  # noqa: S101 - narrows the type; the registry parses it as this class
        if _is_url(command) and config.allowed_origins:
            raise InvalidInput(
                f"{field}.allowed_origins: this fleet's browser runs elsewhere, and takes no settings of an agent.",
                field=f"{field}.allowed_origins",
            )

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the server of one run. It is not shared with other runs."""
        command = self._require("capabilities.browser")
        assert isinstance(config, _Config)  # noqa: S101 - as above
        if _is_url(command):
            return HttpMcpServer(command, timeout_s=_TIMEOUT_S, scope=context.tenant_id, reuse=False)
        program, *args = shlex.split(command)
        args += [flag for flag in _ALWAYS if flag not in args]
        if config.allowed_origins:
            args += ["--allowed-origins", ";".join(config.allowed_origins)]
        return StdioMcpServer(program, tuple(args), timeout_s=_TIMEOUT_S, scope=context.tenant_id, reuse=False)

    def _require(self, field: str) -> str:
        if not self._command or not self._command.strip():
            raise InvalidInput(
                f"{field}: this fleet has no browser. The operator installs the Playwright MCP server and sets "
                "NOVA_TOOLS__BROWSER_COMMAND, such as 'npx @playwright/mcp@latest', or to the URL of one that runs.",
                field=field,
            )
        return self._command


def _is_url(command: str) -> bool:
    return command.startswith(("http://", "https://"))


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return _BrowserCapability(parts.settings.tools.browser_command)
