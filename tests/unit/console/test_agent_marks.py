"""The mark of an agent: the same wherever it is named, and no part of the name's text."""

from __future__ import annotations

from nova_workers.console.names import agent_mark


def test_a_mark_has_the_colour_of_the_id_and_the_initial_of_the_name() -> None:
    assert agent_mark("clerk", "Clerk") == '<span class="agent hue-0" data-initial="C">Clerk</span>'
    assert 'hue-0"' in agent_mark("clerk", "Another name")


def test_a_name_is_text_whatever_it_holds() -> None:
    assert agent_mark("x", '"<b>').endswith('data-initial="B">&#34;&lt;b&gt;</span>')
    assert 'data-initial="?"' in agent_mark("x", "…")
