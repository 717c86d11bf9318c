"""The reference of the HTTP API as Markdown pages, made from the OpenAPI document that the API serves."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from api.app import build_app
from nova_workers.base.config.settings import Settings

_Schema = Mapping[str, Any]

_FOLDER = "reference/http"
_STATED_ELSEWHERE = {"400", "401", "403", "404", "409", "410", "413", "415", "422", "429", "499", "503"}
"""Statuses of errors, which all have one form."""
_BOUNDS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} keys",
    "pattern": "matches `{}`",
}


def pages() -> dict[str, str]:
    """Return the pages by their path: an index, one for each tag, and one of all schemas."""
    # It is built and never started, so its addresses are never used.
    settings = Settings.model_validate(
        {"database_url": "postgresql://127.0.0.1/none", "redis_url": "redis://127.0.0.1"}
    )
    document = build_app(settings).openapi()
    groups: dict[str, list[str]] = {}
    index: list[str] = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            group = operation["tags"][0]
            groups.setdefault(group, []).append("\n".join(_operation(method, path, operation)))
            page = f"{_slug(group)}.md#{operation['operationId']}"
            index.append(
                f"| [`{method.upper()} {path}`]({page}) | {_first_sentence(operation)} | {_scopes(operation)} |"
            )
    made = {
        f"{_FOLDER}/{_slug(group)}.md": "\n".join((f"# {group.capitalize()}", "", *texts))
        for group, texts in groups.items()
    }
    made[f"{_FOLDER}/index.md"] = "\n".join(
        (
            "# HTTP API reference",
            "",
            "Every endpoint, as the running API states it in `/openapi.json`. [HTTP API](../../http-api.md) explains",
            "the conventions: errors, idempotency, cursors, streams.",
            "",
            "| endpoint | what it does | scope |",
            "| --- | --- | --- |",
            *index,
        )
    )
    made[f"{_FOLDER}/schemas.md"] = "\n".join(_schemas(document["components"]["schemas"]))
    return made


def _operation(method: str, path: str, operation: _Schema) -> Iterator[str]:
    yield f"## {method.upper()} {path} {{ #{operation['operationId']} }}\n"
    yield f"{operation.get('description', '')}\n"
    yield f"Operation id `{operation['operationId']}`; scope: {_scopes(operation)}.\n"
    if parameters := operation.get("parameters"):
        yield from ("| parameter | in | type | |", "| --- | --- | --- | --- |")
        for each in parameters:
            needed = "required. " if each.get("required") else ""
            about = needed + each.get("description", each["schema"].get("description", ""))
            yield f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | {_cell(about)} |"
        yield ""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body (`{media}`): {_type(content.get('schema', {}))}\n"
    for status, response in operation["responses"].items():
        if status not in _STATED_ELSEWHERE:
            answers = [
                f"{_type(content.get('schema', {}))} (`{media}`)"
                for media, content in response.get("content", {}).items()
            ]
            yield f"Answer {status}: {', '.join(answers) or response.get('description', 'no body')}\n"
    errors = sorted(_STATED_ELSEWHERE & operation["responses"].keys())
    yield f"Errors: {', '.join(errors)}, as [problem details](../../http-api.md#errors).\n"


def _schemas(schemas: Mapping[str, _Schema]) -> Iterator[str]:
    yield "# Schemas\n"
    for name, schema in sorted(schemas.items()):
        yield f"## {name}\n"
        yield f"{schema.get('description', '')}\n"
        if "properties" not in schema:
            yield f"{_type(schema)}\n"
            continue
        required = schema.get("required", ())
        yield from ("| field | type | |", "| --- | --- | --- |")
        for field, of in schema["properties"].items():
            default = f" Default `{of['default']}`." if of.get("default") not in (None, "", [], {}) else ""
            about = ("required. " if field in required else "") + of.get("description", "") + default
            yield f"| `{field}` | {_type(of)} | {_cell(about)} |"
        yield ""


def _type(schema: _Schema) -> str:
    """Return what a value may be: links to schemas, and its bounds."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](schemas.md#{name.lower()})"
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[choice]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("format") or schema.get("type", "any value")
    if kind == "array":
        kind = f"list of {_type(schema.get('items', {}))}"
    elif kind == "object" and isinstance(values := schema.get("additionalProperties"), Mapping) and values:
        kind = f"object of {_type(values)}"
    bounds = [text.format(_cell(str(schema[key]))) for key, text in _BOUNDS.items() if key in schema]
    return ", ".join((str(kind), *bounds))


def _scopes(operation: _Schema) -> str:
    """Return the scopes that a key needs for an operation."""
    scopes = dict.fromkeys(scope for one in operation.get("security", ()) for given in one.values() for scope in given)
    return ", ".join(f"`{scope}`" for scope in scopes) or ("any key" if operation.get("security") else "none")


def _first_sentence(operation: _Schema) -> str:
    text = operation.get("description", operation["summary"])
    return _cell(re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(":"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _slug(group: str) -> str:
    return group.replace(" ", "-")
