"""A list without rows begins with what a person can do about it: a button, before any command for a terminal."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, nodes

from nova_workers import console

_TEMPLATES = Path(console.__file__).parent / "templates"
_CONTROLS = {"button", "link", "clear"}
_ELSEWHERE = {"It has not fired yet", "Nothing was sent yet"}
"""Lists whose control is the button in the head of the page."""


def _without_control(source: str) -> list[str]:
    """Return the titles of empty states that offer nothing to do; one with a block of its own has its control there."""
    tree = Environment(autoescape=True).parse(source)
    called = {id(block.call) for block in tree.find_all(nodes.CallBlock)}
    return [
        str(call.args[0].value if isinstance(call.args[0], nodes.Const) else call.args[0])
        for call in tree.find_all(nodes.Call)
        if isinstance(call.node, nodes.Getattr)
        and call.node.attr == "empty"
        and id(call) not in called
        and not _CONTROLS & {keyword.key for keyword in call.kwargs}
    ]


def test_empty_states_without_a_control_are_found() -> None:
    assert _without_control('{{ ui.empty("No note", "Text", command="nova notes") }}') == ["No note"]
    assert _without_control('{% call ui.empty("No note", "Text") %}<button>New</button>{% endcall %}') == []
    assert _without_control('{{ ui.empty("No note", "Text", button=("New", "/notes/new")) }}') == []


def test_each_empty_list_has_a_control() -> None:
    faults = [
        f"{path.relative_to(_TEMPLATES)}: {title}"
        for path in sorted(_TEMPLATES.rglob("*.html"))
        for title in _without_control(path.read_text(encoding="utf-8"))
        if title not in _ELSEWHERE
    ]
    assert not faults, "\n".join(faults)
