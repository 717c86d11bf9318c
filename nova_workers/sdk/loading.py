"""Imports code of users, and finds the tools, agents, effects and evaluators in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar

from nova_workers.base.errors import ConfigurationError
from nova_workers.base.project_files import PACKAGES
from nova_workers.base.user_code import import_code, served_module
from nova_workers.contracts.content import JsonObject
from nova_workers.sdk.agents import UserAgent, as_agent
from nova_workers.sdk.context import ToolContext
from nova_workers.sdk.declaration import ToolOptions, options_of, refuse_replaced
from nova_workers.sdk.effects import as_effect
from nova_workers.sdk.evaluators import as_evaluator
from nova_workers.sdk.signatures import FunctionTool

_MCP_SERVERS: Final = "mcp.server.mcpserver"
_CODE: Final = "project_code"
"""The package of a project's ``code/*.py``, which import each other as ``from .other import thing``."""


_Named = TypeVar("_Named", "UserTool", UserAgent)


class UserTool(Protocol):
    """A tool of users: a function, or one of an MCP server object. See `FunctionTool` for the attributes."""

    @property
    def name(self) -> str: ...  # noqa: D102 - described at FunctionTool
    @property
    def description(self) -> str: ...  # noqa: D102 - likewise
    @property
    def input_schema(self) -> JsonObject: ...  # noqa: D102 - likewise
    @property
    def options(self) -> ToolOptions: ...  # noqa: D102 - likewise
    @property
    def place(self) -> str: ...  # noqa: D102 - likewise
    @property
    def function(self) -> Callable[..., Any]: ...  # noqa: D102 - likewise
    @property
    def is_async(self) -> bool: ...  # noqa: D102 - likewise

    def arguments(self, given: JsonObject, context: ToolContext) -> dict[str, Any]:
        """Return the arguments of a call. See `FunctionTool.arguments`."""
        ...


@dataclass(frozen=True, slots=True)
class UserCode:
    """Tools, agents, effects and evaluators of a source, by name."""

    tools: dict[str, UserTool]
    agents: dict[str, UserAgent]
    effects: dict[str, UserTool]
    evaluators: dict[str, UserTool]


def load_code(source: str) -> UserCode:
    """Import code, and return what it declares.

    Args:
        source: A directory, of which all ``tools/*.py`` and ``code/*.py`` are imported whose names begin with a letter;
            or the name of a module. The directory becomes the first place where modules are looked for.

    Raises:
        ConfigurationError: There is none, it cannot be imported, or a declared function cannot be what it is declared
            as. The message begins with file and line where there are any, and says what was expected.
    """
    names = _modules_of(Path(source)) if "/" in source else (served_module(source),)
    code = UserCode({}, {}, {}, {})
    seen: set[int] = set()
    for name in names:
        module = import_code(name)
        refuse_replaced(module)
        for tool in _tools_of(module, seen):
            _add(code.tools, tool, "tool", "@tool(name=…)")
        for agent in filter(None, map(as_agent, tuple(vars(module).values()))):
            if id(agent.function) not in seen:
                seen.add(id(agent.function))
                _add(code.agents, agent, "agent", "def …")
        for effect in filter(None, map(as_effect, tuple(vars(module).values()))):
            if id(effect.function) not in seen:
                seen.add(id(effect.function))
                _add(code.effects, effect, "effect", "def …")
        for judge in filter(None, map(as_evaluator, tuple(vars(module).values()))):
            # The function that is written, not the one around it.
            if (written := id(unwrap(judge.function))) not in seen:
                seen.add(written)
                _add(code.evaluators, judge, "evaluator", "def …")
    return code


def _add(known: dict[str, _Named], thing: _Named, kind: str, how: str) -> None:
    other = known.get(thing.name)
    if other is not None:
        raise ConfigurationError(
            f"{thing.place}: the {kind} {thing.name!r} has the name of the {kind} at {other.place}; expected names "
            f"that differ. Give one of them another: {how}."
        )
    known[thing.name] = thing


def _modules_of(folder: Path) -> tuple[str, ...]:
    tools, code = folder / "tools", folder / "code"
    if not tools.is_dir() and not code.is_dir():
        raise ConfigurationError(
            f"{folder}: there is no directory 'tools' in it, nor one 'code'; expected modules in tools/*.py or "
            "code/*.py."
        )
    root = folder.resolve()
    # Its own packages come before those that are installed here; what serves the code is imported already.
    sys.path[:0] = [str(root), str(root / PACKAGES)] if (root / PACKAGES).is_dir() else [str(root)]
    # Python has a module 'code' of its own, which would be found first.
    package = ModuleType(_CODE)
    package.__path__ = [str(code.resolve())]
    sys.modules[_CODE] = package
    return (
        *(f"tools.{path.stem}" for path in sorted(tools.glob("[A-Za-z]*.py"))),
        *(f"{_CODE}.{path.stem}" for path in sorted(code.glob("[A-Za-z]*.py"))),
    )


def _tools_of(module: ModuleType, seen: set[int]) -> Iterator[UserTool]:
    for thing in tuple(vars(module).values()):
        options = options_of(thing)
        if options is None and not _is_server(thing):
            continue
        # Modules may import tools of each other.
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if options is not None:
            yield FunctionTool.of(thing, options)
        else:
            # Imported with the server's own library: a project without servers does not need it.
            yield from import_module("nova_workers.sdk.servers").tools_of(thing, str(module.__file__))


def _is_server(thing: Any) -> bool:
    library = sys.modules.get(_MCP_SERVERS)
    return library is not None and isinstance(thing, library.MCPServer)
