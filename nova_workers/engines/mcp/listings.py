"""Reads lists of tools of which some have a form that MCP does not permit.

The client library refuses a whole list for one tool, for example because its schema has a union at the top. So on their
way to the library, odd tools become plain ones, and carry what the server declared in their metadata; a tool without a
name is dropped.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Final

import structlog
from mcp.client._transport import TransportStreams
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse, Tool

from nova_workers.contracts.content import JsonObject

_log = structlog.get_logger(__name__)

_DECLARED: Final = "nova/inputSchema"
"""Key in a tool's ``_meta`` with its schema as the server declared it."""
_PLAIN: Final[JsonObject] = {"type": "object"}
_TEXTS: Final = ("title", "description")
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_KNOWN: Final = frozenset({"name", "inputSchema", "outputSchema", "annotations", "_meta", *_TEXTS})


def declared_schema(tool: Tool) -> Any:
    """Return the schema of a tool's arguments as its server declared it: anything that JSON can express."""
    return (tool.meta or {}).get(_DECLARED, tool.input_schema)


@asynccontextmanager
async def tolerant(transport: AbstractAsyncContextManager[TransportStreams]) -> AsyncGenerator[TransportStreams]:
    """Return a transport whose reader gets every list of tools in a form that MCP permits."""
    async with transport as (read, write):
        yield _Reader(read), write


class _Reader:
    """Implements `ReadStream` over another."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception]) -> None:
        self._stream = stream

    @property
    def last_context(self) -> Any:
        """The context of the sender of the last item."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return _permitted(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_Reader":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _permitted(await anext(self._stream))

    async def __aenter__(self) -> "_Reader":
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


def _permitted(item: SessionMessage | Exception) -> SessionMessage | Exception:
    if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
        tools = item.message.result.get("tools")
        # No other result has tools.
        if isinstance(tools, list):
            item.message.result["tools"] = [tool for tool in map(_tool, tools) if tool is not None]
    return item


def _tool(given: Any) -> JsonObject | None:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        _log.warning("mcp_tool_without_name")
        return None
    schema = given.get("inputSchema")
    if _is_permitted(schema) and given.keys() <= _KNOWN and all(isinstance(given.get(key, ""), str) for key in _TEXTS):
        tool: JsonObject = given
    else:
        tool = {key: given[key] for key in _TEXTS if isinstance(given.get(key), str)} | {"name": given["name"]}
        for key in ("outputSchema", "annotations", "_meta"):
            if key in given:
                tool[key] = given[key]
        meta = given.get("_meta")
        tool["_meta"] = {**(meta if isinstance(meta, dict) else {}), _DECLARED: schema}
        tool["inputSchema"] = _PLAIN
    return _without_odd_parts(tool)


def _without_odd_parts(tool: JsonObject) -> JsonObject:
    """Return the tool without what the library would refuse it for, and nothing here needs."""
    odd = [
        *(key for key in ("annotations", "_meta") if key in tool and not isinstance(tool[key], dict)),
        *(key for key in ("outputSchema",) if key in tool and not _is_permitted(tool[key])),
    ]
    hints = tool.get("annotations")
    if isinstance(hints, dict) and not all(isinstance(hints.get(hint), bool | None) for hint in _HINTS):
        odd.append("annotations")
    return {key: value for key, value in tool.items() if key not in odd} if odd else tool


def _is_permitted(schema: Any) -> bool:
    """Return whether MCP permits the schema in a list of tools."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return False
    properties, required, dialect = schema.get("properties", {}), schema.get("required", []), schema.get("$schema", "")
    return (
        isinstance(properties, Mapping)
        and all(isinstance(part, Mapping) for part in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and isinstance(dialect, str)
    )
