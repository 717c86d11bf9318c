"""The mark of an agent: the same wherever it is named, and no part of the name's text."""

from __future__ import annotations

from nova_workers.console.names import agent_mark, labelled


def test_a_mark_has_the_colour_of_the_id_and_the_initial_of_the_name() -> None:
    assert agent_mark("clerk", "Clerk") == '<span class="agent hue-0" data-initial="C">Clerk</span>'
    assert 'hue-0"' in agent_mark("clerk", "Another name")


def test_a_name_is_text_whatever_it_holds() -> None:
    assert agent_mark("x", '"<b>').endswith('data-initial="B">&#34;&lt;b&gt;</span>')
    assert 'data-initial="?"' in agent_mark("x", "…")


def test_agents_have_their_names_for_labels_and_ids_where_these_are_the_same() -> None:
    agents = [("nova", "Nova"), ("clerk", "Clerk"), ("other", "clerk")]
    assert labelled(agents) == [("nova", "Nova"), ("clerk", "Clerk (clerk)"), ("other", "clerk (other)")]
