import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from nova_workers.cli.talk.chat_input import CommandCompleter, message_of


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("hello", "hello"),
        ("//etc/hosts", "/etc/hosts"),
        ("/say /help me", "/help me"),
        ("/steer go on", "go on"),
        ("/help", None),
        ("/say", None),
        ("a\n/b", "a\n/b"),
    ],
)
def test_a_line_is_a_message_unless_it_begins_with_one_slash(typed: str, meant: str | None) -> None:
    assert message_of(typed) == meant


@pytest.mark.parametrize(
    ("typed", "offered"), [("/", 5), ("/th", 1), ("/say x", 0), ("hello /th", 0), ("", 0), ("/nothing", 0)]
)
def test_only_commands_that_begin_a_message_are_completed(typed: str, offered: int) -> None:
    found = list(CommandCompleter().get_completions(Document(typed), CompleteEvent()))
    assert len(found) == offered
