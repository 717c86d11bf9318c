"""Filters that return elements stand where elements may: not in attributes, and not in the title of a page."""

import re
from pathlib import Path

import pytest

from nova_workers import console

_TEMPLATES = Path(console.__file__).parent / "templates"
_ELEMENTS = r"\{\{[^}]*\|\s*(?:agent|marked|mark|author|time|due)\b[^}]*\}\}"
_WRONG = re.compile(rf'="[^"<>]*{_ELEMENTS}|\{{% block title %\}}[^%]*{_ELEMENTS}')


@pytest.mark.parametrize(
    ("template", "is_wrong"),
    [
        ('<ul aria-label="Files of {{ id | agent }}">', True),
        ("{% block title %}History of {{ id | agent }}{% endblock %}", True),
        ('<ul aria-label="Files of {{ id | agent_name }}">', False),
        ('<a href="/agents/{{ id }}">{{ id | agent }}</a>', False),
    ],
)
def test_elements_in_attributes_and_titles_are_found(template: str, is_wrong: bool) -> None:
    assert bool(_WRONG.search(template)) == is_wrong


def test_no_template_has_elements_in_attributes_or_titles() -> None:
    wrong = [
        f"{path.relative_to(_TEMPLATES)}: {found.group()}"
        for path in sorted(_TEMPLATES.rglob("*.html"))
        for found in _WRONG.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)
