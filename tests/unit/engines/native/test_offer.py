"""Which native tools a turn has."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.contracts.engine import EngineOptions, TrustLevel
from nova_workers.contracts.native import FILE_TOOLS, NATIVE_TOOLS, RESERVED_NAMES
from nova_workers.contracts.ports import FetchedPage
from nova_workers.engines.native import NativeTools, ShellSettings, WebSearchSettings
from tests.unit.engines.native.conftest import NativeToolCaller

LEVELS: tuple[TrustLevel, ...] = ("sandbox", "controlled", "unrestricted")


class _Fetcher:
    async def fetch(self, url: str) -> FetchedPage:
        return FetchedPage(url, 404, "text/plain", "nothing here", truncated=True)


@given(
    cwd=st.sampled_from([None, "/tmp"]),
    directories=st.lists(st.sampled_from(["/tmp", "/var/tmp"]), max_size=2),
    fetch=st.booleans(),
    shell=st.booleans(),
    search=st.booleans(),
)
def test_each_trust_has_all_tools_of_the_one_before(
    cwd: str | None, directories: list[str], fetch: bool, shell: bool, search: bool
) -> None:
    native = NativeTools(
        fetcher=_Fetcher() if fetch else None,
        shell=ShellSettings() if shell else None,
        web_search=WebSearchSettings() if search else None,
    )
    options = EngineOptions(cwd=cwd, directories=tuple(directories))
    sandbox, controlled, unrestricted = (native.for_turn(options, trust) for trust in LEVELS)
    native.close()
    assert sandbox.offered() == frozenset()
    assert sandbox.server_tools == ()
    assert sandbox.offered() <= controlled.offered() <= unrestricted.offered()
    assert unrestricted.offered() - controlled.offered() <= {"Bash"}
    for trust, tools in zip(LEVELS, (sandbox, controlled, unrestricted), strict=True):
        assert tools.offered() <= set(NATIVE_TOOLS[trust])
        assert set(tools.definitions()) == set(tools.tools)


def test_with_all_its_parts_a_trust_has_exactly_its_tools() -> None:
    native = NativeTools(fetcher=_Fetcher(), shell=ShellSettings(), web_search=WebSearchSettings())
    for trust in LEVELS:
        assert native.for_turn(EngineOptions(cwd="/tmp"), trust).offered() == set(NATIVE_TOOLS[trust])
    native.close()
    assert set(NATIVE_TOOLS["unrestricted"]) == RESERVED_NAMES


def test_without_a_directory_there_are_no_tools_on_files(caller: NativeToolCaller, tmp_path: Path) -> None:
    assert caller.toolset(cwd=False).offered() == {"WebSearch"}
    assert set(FILE_TOOLS) <= caller.toolset("controlled", tmp_path, cwd=False).offered()


async def test_only_reading_tools_are_idempotent(caller: NativeToolCaller) -> None:
    again = {name for name in caller.tools.tools if await caller.tools.is_idempotent(name)}
    assert again == {"Read", "Glob", "Grep"}
    assert not await caller.tools.is_idempotent("nothing")


async def test_a_tool_that_is_not_offered_cannot_be_called(caller: NativeToolCaller) -> None:
    caller = caller.with_tools(caller.toolset("controlled"))
    assert "no native tool 'Bash'" in await caller.failure("Bash", command="ls")


@pytest.mark.parametrize("name", ["Read", "Write", "Edit", "Glob", "Grep", "Bash"])
async def test_arguments_of_the_wrong_form_are_reported(caller: NativeToolCaller, name: str) -> None:
    assert "wrong form" in await caller.failure(name)
    wrong = {key: {"a": 1} for key in ("file_path", "pattern", "command", "content", "old_string", "new_string")}
    assert "wrong form" in await caller.failure(name, **wrong)


def test_schemas_are_plain(caller: NativeToolCaller) -> None:
    for definition in caller.tools.definitions().values():
        assert definition.input_schema["type"] == "object"
        assert "title" not in definition.input_schema
        assert definition.description


async def test_a_page_has_its_address_and_status() -> None:
    native = NativeTools(fetcher=_Fetcher())
    caller = NativeToolCaller(native, Path("/nowhere")).with_tools(native.for_turn(EngineOptions(), "controlled"))
    outcome = await caller.outcome("WebFetch", url="http://x.test/")
    native.close()
    assert outcome.failed
    assert outcome.content[0]["text"] == (
        "http://x.test/ (404, text/plain)\n\nnothing here\n\n[the page is longer; this is its beginning]"
    )
