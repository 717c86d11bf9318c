"""What the real model providers refuse, so that the model server refuses it too.

The rules are those of the testing kit (`nova_workers.sdk.testing.strict`), and of Gemini, which the kit does not serve.
"""

from collections.abc import Mapping, Set
from typing import Any

from nova_workers.sdk.testing.strict import Refused, check_chat, check_messages, check_responses
from tests.support.servers.replies import Status
from tests.support.servers.strict.gemini_api import check_gemini


def refusal_of(
    path: str, headers: Mapping[str, str], body: dict[str, Any], size_bytes: int, also: Set[str] = frozenset()
) -> Status | None:
    """Return the error that a request gets; None if it is valid. `also` is that of `check_chat`."""
    try:
        if path.endswith("/chat/completions"):
            check_chat(body, size_bytes, also)
        elif ":streamGenerateContent" in path:
            check_gemini(body)
        elif path.endswith("/responses"):
            check_responses(body, size_bytes)
        elif path.partition("?")[0].endswith("/messages"):
            check_messages(body, headers, size_bytes)
    except Refused as refused:
        return Status(refused.status, refused.type, refused.message, detail=refused.code)
    return None


def refusal_of_tool(path: str, body: dict[str, Any], name: str) -> Status | None:
    """Return the error that a request gets for a tool that the provider dislikes; None if it has none of that name."""
    if ":streamGenerateContent" in path:
        functions = [function for tool in body.get("tools", ()) for function in tool.get("functionDeclarations", ())]
        at = next((at for at, function in enumerate(functions) if function["name"].endswith(name)), None)
        where = f"* GenerateContentRequest.tools[0].function_declarations[{at}].parameters"
        message = f"{where}.properties: should be non-empty for OBJECT type"
        return None if at is None else Status(400, "INVALID_ARGUMENT", message)
    tools: list[dict[str, Any]] = body.get("tools", [])
    if path.endswith(("/chat/completions", "/responses")):
        known = [tool.get("function", tool)["name"] for tool in tools if tool["type"] == "function"]
        known += [inner["name"] for tool in tools for inner in tool.get("tools", ())]
        message = f"Invalid schema for function '{name}': the image of it is not an object."
        return Status(400, "invalid_request_error", message) if name in known else None
    at = next((at for at, tool in enumerate(tools) if tool["name"].endswith(name)), None)
    message = f"tools.{at}.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12."
    return None if at is None else Status(400, "invalid_request_error", message)
