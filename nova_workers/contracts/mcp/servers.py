"""The configuration of an MCP server: a program to start, or a URL.

Values of environment, headers and URLs may name secrets, as ``${secret:NAME}``; a configuration never contains their
values. They are inserted at the start of each run, so that a changed secret takes effect with the next run.
"""

import re
import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal
from urllib.parse import quote, urlsplit

from pydantic import ConfigDict, Field, StringConstraints, field_validator

from nova_workers.base.config import ToolSettings
from nova_workers.base.errors import InvalidInput
from nova_workers.base.field_docs import DescribedFields
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.authors.rights import BOUND, COMMAND, PROGRAM_DIRECTORY, SECRET_REFERENCES, STEERS, authored
from nova_workers.contracts.engine import HttpMcpServer, McpServer, StdioMcpServer

MCP_CAPABILITY: Final = "mcp"
"""The capability with which an agent has servers."""

_REFERENCE: Final = re.compile(r"\$\{secret:([^}]*)\}")
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_UNSENDABLE: Final = re.compile(r"[^\x20-\x7e]")
_OF_THE_TRANSPORT: Final = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})

_Text = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00]*$")]
_Line = Annotated[str, StringConstraints(min_length=1, max_length=4_000, pattern=r"^[^\x00-\x1f\x7f]*$")]
_HeaderValue = Annotated[str, StringConstraints(min_length=1, max_length=4_000, pattern=r"^[\x20-\x7e]*$")]
_HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
_VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
_ToolName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:_?[a-z0-9-])*$", max_length=40)]
"""Without ``__``, which separates it from a tool's name: so no rule for one server matches the tools of another."""
_Seconds = Annotated[float, Field(gt=0, le=3_600)]


def _checked_references(text: str) -> str:
    for name in _REFERENCE.findall(text):
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"${{secret:{name}}} names no secret: capital letters, digits and underscores")
    return text


@authored(
    tools=STEERS,
    timeout_s=BOUND,
)
class _Server(DescribedFields, TrueNumbers):
    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    tools: Annotated[tuple[_ToolName, ...], Field(max_length=500)] | None = None
    """Allow-list; null allows every tool of the server."""
    timeout_s: _Seconds = 60.0
    """Most time for the server to start, and for each call."""


@authored(
    type=STEERS,
    command=COMMAND,
    args=STEERS,
    env=SECRET_REFERENCES,
    cwd=PROGRAM_DIRECTORY,
)
class StdioServer(_Server):
    """A program that is started and speaks on stdin and stdout."""

    type: Literal["stdio"]
    command: _Line
    """The operator permits command lines with NOVA_TOOLS__MCP_COMMANDS."""
    args: Annotated[tuple[_Text, ...], Field(max_length=100)] = ()
    """Its arguments, each by itself."""
    env: Annotated[dict[_VariableName, _Text], Field(max_length=100)] = Field(default_factory=dict[str, str])
    """Environment variables. ``${secret:NAME}`` in a value stands for a secret. The operator permits names with
    NOVA_TOOLS__MCP_ENV."""
    cwd: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$", max_length=1_000)] | None = None
    """An absolute path on the workers."""

    @field_validator("env")
    @classmethod
    def _has_references(cls, env: dict[str, str]) -> dict[str, str]:
        for value in env.values():
            _checked_references(value)
        return env

    def references(self) -> set[str]:
        """Return the names of the secrets that it refers to."""
        return _references(self.env.values())

    def line(self) -> str:
        """Return the command as a shell line."""
        return shlex.join((self.command, *self.args))

    def check(self, tools: ToolSettings, field: str) -> None:
        """Refuse a command or a variable that the operator does not permit.

        A variable may decide which program a permitted command becomes (`PATH`, `UV_DEFAULT_INDEX`,
        `JDK_JAVA_OPTIONS`, …), and no list of those is complete.
        """
        line = self.line()
        if not any(fnmatchcase(line, pattern) for pattern in tools.mcp_commands):
            raise InvalidInput(
                f"{field}.command: this fleet may not start {line!r}. The operator permits commands with "
                "NOVA_TOOLS__MCP_COMMANDS.",
                field=f"{field}.command",
            )
        for name in self.env:
            if not any(fnmatchcase(name, pattern) for pattern in tools.mcp_env):
                raise InvalidInput(
                    f"{field}.env.{name}: this fleet may not start a server with the variable {name!r}. The operator "
                    "permits variables with NOVA_TOOLS__MCP_ENV.",
                    field=f"{field}.env.{name}",
                )

    def resolve(self, scope: str, values: dict[str, str]) -> McpServer:
        """Return the server with the values of its secrets."""
        env = {name: _filled(value, values) for name, value in self.env.items()}
        return StdioMcpServer(self.command, self.args, env, self.cwd, self.tools, self.timeout_s, scope, qualified=True)


@authored(
    url=SECRET_REFERENCES,
    headers=SECRET_REFERENCES,
)
class HttpAddress(DescribedFields, TrueNumbers):
    """Where requests of a run go to: a URL, with credentials by reference."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    url: Annotated[_Line, StringConstraints(pattern=r"^https?://")]
    """Where it is. ``${secret:NAME}`` stands for a secret in the path and query, never in the host."""
    headers: Annotated[dict[_HeaderName, _HeaderValue], Field(max_length=50)] = Field(default_factory=dict[str, str])
    """Sent with each request. ``${secret:NAME}`` in a value stands for a secret."""

    @field_validator("url")
    @classmethod
    def _is_whole(cls, url: str) -> str:
        parts = urlsplit(_checked_references(url))
        if "$" in parts.netloc or "@" in parts.netloc or not parts.hostname:
            raise ValueError("the host must be written out, without a user or a secret in it")
        _ = parts.port  # raises for a port that is not a number
        return url

    @field_validator("headers")
    @classmethod
    def _are_free(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if name.lower() in _OF_THE_TRANSPORT:
                raise ValueError(f"{name} is set by the transport")
            _checked_references(value)
        return headers

    def references(self) -> set[str]:
        """Return the names of the secrets that it refers to."""
        return _references((self.url, *self.headers.values()))

    def check(self, tools: ToolSettings, field: str) -> None:
        """Refuse plain HTTP, since requests may have secrets; addresses are checked when connecting."""
        parts = urlsplit(self.url)
        host = (parts.hostname or "").lower()
        known = {host, f"{host}:{parts.port or 80}"} & set(tools.mcp_allow_hosts)
        if parts.scheme == "http" and not known:
            raise InvalidInput(
                f"{field}.url: {host!r} is to be reached over https. The operator permits plain HTTP to a host of "
                "their own with NOVA_TOOLS__MCP_ALLOW_HOSTS.",
                field=f"{field}.url",
            )

    def filled(self, values: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers with the values of their secrets.

        Raises:
            InvalidInput: No header takes the value of a secret; names the secret.
        """
        for name in _references(self.headers.values()):
            if _UNSENDABLE.search(values[name]):
                raise InvalidInput(f"The secret {name!r} has characters that no HTTP header takes.")
        url = _filled(self.url, {name: quote(value, safe="") for name, value in values.items()})
        return url, {name: _filled(value, values) for name, value in self.headers.items()}


@authored(
    type=STEERS,
)
class HttpServer(HttpAddress, _Server):
    """A server behind a streamable-HTTP URL."""

    type: Literal["http"]

    def resolve(self, scope: str, values: dict[str, str]) -> McpServer:
        """Return the server with the values of its secrets."""
        url, headers = self.filled(values)
        return HttpMcpServer(url, headers, self.tools, self.timeout_s, scope, qualified=True)


McpServerForm = Annotated[StdioServer | HttpServer, Field(discriminator="type")]


def _references(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in _REFERENCE.findall(text)}


def _filled(text: str, values: dict[str, str]) -> str:
    return _REFERENCE.sub(lambda found: values[found[1]], text)
