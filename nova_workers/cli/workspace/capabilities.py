"""`nova capabilities`: the capabilities that agents can be granted."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from nova_workers.base.errors import missing
from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import Output, short

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@remote(app, "capabilities")
async def capabilities(
    session: Session,
    name: Annotated[str | None, typer.Argument(help="Only this one, with what its tools do.")] = None,
) -> None:
    """List the capabilities and their tools. `nova agents edit AGENT --capability NAME` grants one."""
    found = await session.client.capabilities()
    if name is None:
        session.out.write(found, _show_all)
        return
    one = next((each for each in found if each["name"] == name), None)
    if one is None:
        raise missing("capability", name, "`nova capabilities` lists them.")
    session.out.write(one, _show)


def _show_all(out: Output, found: list[dict[str, Any]]) -> None:
    rows = [(each["name"], short(each["description"], 200), ", ".join(_tools(each))) for each in found]
    out.table(("name", ("what for", "fold"), ("tools", "fold")), rows)


def _tools(capability: dict[str, Any]) -> list[str]:
    if capability["open_ended"]:
        return ["those of its servers"]
    return [tool["name"] for tool in capability["tools"]]


def _show(out: Output, capability: dict[str, Any]) -> None:
    fields = capability["config_schema"].get("properties", {})
    out.facts(
        (
            ("name", capability["name"]),
            ("what for", capability["description"]),
            ("granted", "never: runs of its kind have it by themselves" if capability["injected"] else ""),
            ("configured by", ", ".join(fields)),
            ("tools", "those of its servers" if capability["open_ended"] else ""),
        )
    )
    rows = [
        (tool["name"], short(tool["description"], 300), "; ".join(_inputs(tool["input_schema"])))
        for tool in capability["tools"]
    ]
    if rows:
        out.table(("tool", ("what it does", "fold"), ("takes", "fold")), rows)


def _inputs(schema: dict[str, Any]) -> Iterator[str]:
    """Return a tool's inputs, each with its type and whether it is optional."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        left_out = "" if name in required else ", optional"
        yield f"{name} ({_form(field)}{left_out})"


def _form(field: dict[str, Any]) -> str:
    """Return the type of a value as text."""
    if choices := field.get("enum"):
        return " | ".join(map(str, choices))
    if "const" in field:
        return str(field["const"])
    if choices := field.get("anyOf", field.get("oneOf")):
        return " or ".join(dict.fromkeys(_form(each) for each in choices if each.get("type") != "null"))
    if field.get("type") == "array":
        return f"list of {_form(field.get('items', {}))}"
    return str(field.get("format") or field.get("type") or "object")
