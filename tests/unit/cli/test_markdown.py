"""Markdown of agents in a terminal: formatted, and without control of it."""

import io
import re

import pytest
from rich.console import Console

from nova_workers.cli.terminal.markdown import SafeMarkdown
from nova_workers.cli.workspace.files import local_name

_STYLES = re.compile(r"\x1b\[[\d;]*m")
"""What rich itself writes: colours and weights."""


def _shown(text: str) -> str:
    sink = io.StringIO()
    Console(file=sink, force_terminal=True, color_system="standard", width=80, highlight=False).print(
        SafeMarkdown(text)
    )
    return sink.getvalue()


def test_markdown_is_formatted() -> None:
    shown = _shown("# Plan\n\n- **one**\n- `two`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert "\x1b[1m" in shown
    plain = _STYLES.sub("", shown)
    assert "**" not in plain
    assert "• one" in plain
    assert "|---|" not in plain


@pytest.mark.parametrize(
    "text",
    [
        "\x1b]0;owned\x07 title",
        "\x1b[2J\x1b[31mred",
        "\x9b31m C1",
        "&#27;[31m entity &#x1b;]8;;http://x\x07",
        "&#155;31m &#x9b;31m",
        "`\x1b[31m code`",
        "```\n\x1b[2J\n&#27;[2J\n```",
        "```python\nprint('\x1b[2J')\n```",
        "[words](http://example.test/\x1b]8;;)",
        "<http://example.test/%1b>",
        "![image](x\x1b[2J)",
        "| \x1b[2J | b |\n|---|---|\n| \x07 | \x08 |",
        "# \x1bc",
        "<script>\x1b[2J</script>",
        "\\\x1b[2J",
        "[bold red]markup[/bold red]",
    ],
)
def test_markdown_cannot_control_the_terminal(text: str) -> None:
    plain = _STYLES.sub("", _shown(text))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", plain), repr(plain)


def test_a_link_shows_its_address() -> None:
    assert "http://elsewhere.test" in _STYLES.sub("", _shown("[your bank](http://elsewhere.test)"))


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("a.txt", "a.txt"),
        ("../../x", "x"),
        ("/etc/passwd", "passwd"),
        ("a\\b", "b"),
        (".bashrc", "bashrc"),
        ("..", "file"),
        ("a/", "file"),
        ("\x1b[31mx", "[31mx"),
    ],
)
def test_a_file_is_saved_in_the_current_directory_and_not_hidden(name: str, saved: str) -> None:
    assert local_name(name) == saved
