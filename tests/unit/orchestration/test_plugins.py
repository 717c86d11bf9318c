"""Which plugins an agent has."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from nova_workers.domain.orchestrations.rules.config.plugins import resolve_plugins
from nova_workers.domain.orchestrations.rules.config.values import Plugin


def plugin(*tags: str) -> Plugin:
    return TypeAdapter[Plugin](Plugin).validate_python({"type": "stdio", "command": "serve", "tags": tags})


PLUGINS = {"files": plugin(), "browser": plugin("web page", "Scrape"), "review": plugin("reviewer")}
OWN = plugin("own")


def names(prompt: str, *, role: str = "WORKER", exclude: Collection[str] = ()) -> set[str]:
    assert role in {"WORKER", "REVIEWER"}
    found = resolve_plugins(
        PLUGINS, role="REVIEWER" if role == "REVIEWER" else "WORKER", prompt=prompt, exclude_plugins=exclude
    )
    return set(found)


def test_tags_match_words_of_the_prompt_and_the_role() -> None:
    assert names("Fix the bug.") == {"files"}
    assert names("Read the WEB-page of the maker.") == {"files", "browser"}
    assert names("Read the web pages.") == {"files"}
    assert names("Fix the bug.", role="REVIEWER") == {"files", "review"}


def test_without_any_tag_every_plugin_is_taken() -> None:
    plain = {"a": plugin(), "b": plugin()}
    assert set(resolve_plugins(plain, role="WORKER", prompt="")) == {"a", "b"}


def test_servers_of_the_request_are_merged_over_all_plugins() -> None:
    found = resolve_plugins(PLUGINS, role="WORKER", prompt="", mcp_servers={"files": OWN, "mine": OWN})
    assert found == {**PLUGINS, "files": OWN, "mine": OWN}


@given(
    st.sets(st.sampled_from(["files", "browser", "review", "mine"])),
    st.sampled_from([None, {}, {"mine": OWN}]),
    st.text(max_size=30),
)
def test_what_is_excluded_is_never_taken(exclude: set[str], own: dict[str, Plugin] | None, prompt: str) -> None:
    found = resolve_plugins(PLUGINS, role="WORKER", prompt=prompt, mcp_servers=own, exclude_plugins=exclude)
    assert not exclude & set(found)
