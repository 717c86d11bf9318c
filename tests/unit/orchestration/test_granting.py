"""What an agent of an orchestration may hold: never more than its parent, whatever it asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.errors import AgentSpawnError
from nova_workers.base.vocabulary import AgentRole, PermissionMode
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.engine import TrustLevel
from nova_workers.contracts.mcp.servers import HttpServer
from nova_workers.contracts.native import NATIVE_TOOLS, RESERVED_NAMES, native_tools
from nova_workers.contracts.orchestration import READ_TOOLS, CapabilityTools
from nova_workers.domain.orchestrations.rules.config.values import CapabilityProfile, CapabilityProfiles
from nova_workers.domain.orchestrations.rules.spawning import granting
from nova_workers.domain.orchestrations.rules.spawning.areas import WorkArea
from nova_workers.domain.orchestrations.rules.spawning.granting import (
    Asked,
    Giver,
    Granted,
    check_directory,
    check_tools,
    form_of,
    servers_of,
    withheld,
)
from tests.requirements import proves

KNOWN: CapabilityTools = {
    "notes": {"note_read": "reads", "note_list": "reads", "note_create": "changes", "note_delete": "changes"},
    "self": {"self_read": "reads", "self_set_instructions": "changes"},
    "triggers": {"trigger_list": "reads", "trigger_create": "changes"},
    "browser": None,
    "mcp": None,
    "orchestrations": {"start_orchestration": "changes", "list_orchestrations": "reads"},
}
PROFILES = CapabilityProfiles()
_NAMES = sorted({*KNOWN, *(tool for tools in KNOWN.values() for tool in tools or ()), *RESERVED_NAMES, "no_such"})
_NAME = st.sampled_from(_NAMES)
_SOME = st.none() | st.lists(_NAME, unique=True, max_size=8)


AREA = WorkArea("/files/nova", "/files/nova/orc_1")


def granted(
    parent: AgentSpec,
    role: AgentRole,
    tools: Collection[str] | None,
    profile: CapabilityProfile,
    known: CapabilityTools,
) -> Granted:
    return granting.granted(Giver(parent, known, AREA), Asked(role, tools, profile))


def _tools(held: Granted | AgentSpec) -> set[str]:
    """Return all that is held by name; an open-ended capability is one."""
    capabilities: Mapping[str, CapabilityGrant] = held.capabilities
    native = held.native if isinstance(held, Granted) else native_tools(held.trust, held.native_tools)
    found = set(native)
    for name, grant in capabilities.items():
        known = KNOWN[name]
        if grant.tools is None:
            found.update(known or {name})
        else:
            found.update(tool for tool in grant.tools if known is None or tool in known)
    return found


def _listed(held: Granted, name: str) -> tuple[str, ...]:
    return held.capabilities[name].tools or ()


def _spec(native: list[str] | None, grants: dict[str, list[str] | None], trust: TrustLevel) -> AgentSpec:
    capabilities = {
        name: CapabilityGrant(tools=None if tools is None else tuple(tools)) for name, tools in grants.items()
    }
    only = None if native is None else tuple(tool for tool in native if tool in RESERVED_NAMES)
    return AgentSpec(name="parent", trust=trust, native_tools=only, capabilities=capabilities)


PARENTS = st.builds(
    _spec,
    _SOME,
    st.dictionaries(st.sampled_from(sorted(KNOWN)), _SOME),
    st.sampled_from(tuple[TrustLevel, ...](NATIVE_TOOLS)),
)
PROFILE = st.builds(
    CapabilityProfile,
    reads=st.booleans(),
    tools=st.lists(_NAME | st.sampled_from(["*", "note_*"]), max_size=4).map(tuple),
)


@given(PARENTS, st.sampled_from(get_args(AgentRole)), _SOME, PROFILE)
def test_a_child_holds_nothing_that_its_parent_does_not_hold(
    parent: AgentSpec, role: AgentRole, tools: list[str] | None, profile: CapabilityProfile
) -> None:
    held = granted(parent, role, tools, profile, KNOWN)
    assert _tools(held) <= _tools(parent)
    for name, grant in held.capabilities.items():
        assert grant.config == parent.capabilities[name].config
    if tools is not None and role != "MASTER":
        named = set(tools)
        whole = {
            tool for name in named & set(held.capabilities) for tool in (*(KNOWN[name] or {name}), *_listed(held, name))
        }
        assert _tools(held) <= named | whole
    assert not held.capabilities.keys() & {"mcp", "orchestrations"}


@given(PARENTS, st.lists(st.tuples(st.sampled_from(get_args(AgentRole)), _SOME), max_size=5))
def test_no_line_of_children_gets_back_what_was_not_given(
    parent: AgentSpec, line: list[tuple[AgentRole, list[str] | None]]
) -> None:
    everything = CapabilityProfile(tools=("*",))
    for role, tools in line:
        held = granted(parent, role, tools, everything, KNOWN)
        child = parent.model_copy(update={"native_tools": held.native, "capabilities": dict(held.capabilities)})
        assert _tools(child) <= _tools(parent)
        parent = child


OWNER = AgentSpec(
    name="owner", trust="unrestricted", capabilities={name: CapabilityGrant() for name in KNOWN if name != "mcp"}
)


def test_named_tools_are_all_that_a_child_gets() -> None:
    held = granted(OWNER, "WORKER", ["Read", "note_create"], PROFILES.WORKER, KNOWN)
    assert _tools(held) == {"Read", "note_create"}
    assert _tools(granted(OWNER, "WORKER", ["Read"], PROFILES.WORKER, KNOWN)) == {"Read"}
    assert _tools(granted(OWNER, "WORKER", ["notes"], PROFILES.WORKER, KNOWN)) == set(KNOWN["notes"] or ())
    assert _tools(granted(OWNER, "WORKER", [], PROFILES.WORKER, KNOWN)) == set()


@pytest.mark.parametrize("role", ["EXPERT", "REVIEWER"])
def test_experts_and_reviewers_only_read(role: AgentRole) -> None:
    held = granted(OWNER, role, None, PROFILES.of(role), KNOWN)
    assert _tools(held) == {*READ_TOOLS, "note_read", "note_list", "self_read", "trigger_list"}


def test_a_worker_works_and_changes_no_agent() -> None:
    held = _tools(granted(OWNER, "WORKER", None, PROFILES.WORKER, KNOWN))
    assert held >= {"Bash", "Write", "note_create", "note_read", "browser"}
    assert not held & {"self_set_instructions", "trigger_create", "note_delete"}


def test_a_configuration_gives_a_role_more_or_less() -> None:
    more = CapabilityProfiles.model_validate({"REVIEWER": {"tools": ["note_*"]}, "WORKER": {"reads": False}})
    assert "note_delete" in _tools(granted(OWNER, "REVIEWER", None, more.REVIEWER, KNOWN))
    assert not _tools(granted(OWNER, "WORKER", None, more.WORKER, KNOWN)) & {"note_read", "note_create"}


def test_a_tool_that_the_parent_does_not_hold_is_refused_by_name() -> None:
    parent = AgentSpec(name="p", trust="controlled", native_tools=("Read",), capabilities={"notes": CapabilityGrant()})
    giver = Giver(parent, KNOWN, AREA)
    check_tools(giver, ["Read", "notes", "note_read"])
    for tool in ("Write", "Bash", "self_read", "no_such"):
        with pytest.raises(
            AgentSpawnError, match=f"you have no tool '{tool}' that you could give. Available: Read, no"
        ):
            check_tools(giver, [tool])


def test_what_an_agent_gets_only_by_name_is_listed() -> None:
    assert withheld(OWNER, PROFILES.WORKER, KNOWN) == (
        "note_delete",
        "self_set_instructions",
        "trigger_create",
    )
    assert withheld(OWNER, PROFILES.REVIEWER, KNOWN) == (
        *("note_create", "note_delete", "self_set_instructions", "trigger_create"),
    )
    everything = CapabilityProfile(tools=("*",))
    assert withheld(OWNER, everything, KNOWN) == ()


_SERVERS = {name: HttpServer(type="http", url=f"http://127.0.0.1:9/{name}") for name in ("a", "b")}
_OTHER = HttpServer(type="http", url="http://127.0.0.1:9/other")
_PATHS = st.none() | st.sampled_from(
    ["x", "x/y", "..", "x/..", ".", "/files/nova", "/files/nova/x", "/srv/a/b", "/srv", "/"]
)


@given(
    PARENTS,
    st.builds(
        WorkArea,
        st.just("/files/nova"),
        st.just("/files/nova/orc_1"),
        st.sampled_from([(), ("/srv/a",)]),
        st.sampled_from([None, "/srv/a/b"]),
    ),
    st.lists(st.sampled_from(["a", "b"]), unique=True),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from([*_SERVERS.values(), _OTHER])),
    _PATHS,
    st.sampled_from(get_args(PermissionMode)),
    st.sampled_from(get_args(AgentRole)),
)
def test_no_child_has_a_server_a_directory_or_a_mode_that_its_parent_does_not_have(
    parent: AgentSpec,
    area: WorkArea,
    own: list[str],
    asked: dict[str, HttpServer],
    cwd: str | None,
    mode: PermissionMode,
    role: AgentRole,
) -> None:
    servers = {name: form_of(_SERVERS[name]) for name in own}
    giver = Giver(parent, KNOWN, area, area.cwd, mode, servers)
    held = granting.granted(giver, Asked(role, None, PROFILES.of(role), asked, cwd, "BYPASS"))
    assert held.servers.items() <= servers.items()
    assert mode != "PLAN" or held.permission_mode == "PLAN"
    if held.writes and held.cwd is not None:
        assert any(PurePosixPath(held.cwd).is_relative_to(root) for root in area.roots)
    assert held.cwd is None or ".." not in PurePosixPath(held.cwd).parts


def test_the_servers_of_an_agent_are_those_of_its_configuration() -> None:
    forms = {name: form_of(server) for name, server in _SERVERS.items()}
    spec = AgentSpec(name="p", capabilities={"mcp": CapabilityGrant(config={"servers": forms})})
    assert servers_of(spec) == forms
    assert servers_of(AgentSpec(name="p")) == {}
    assert Giver(spec, KNOWN, AREA, servers=None).may_give("c", _OTHER), "A master gives what there is."


@pytest.mark.parametrize(
    ("tools", "cwd", "given"),
    [
        (["Write"], "part", "/files/nova/a/part"),
        (["Write"], "/files/nova/a", "/files/nova/a"),
        (["Write"], "/files/nova/b", None),
        (["Write"], "../b", None),
        (["Read"], "/files/nova/b", "/files/nova/b"),
        (["Read"], "/etc", None),
    ],
)
def test_a_directory_is_one_where_the_parent_may_write_or_for_a_reader_one_that_it_may_read(
    tools: list[str], cwd: str, given: str | None
) -> None:
    giver = Giver(AgentSpec(name="p", trust="controlled"), KNOWN, AREA.at("/files/nova/a"), "/files/nova/a")
    asked = Asked("WORKER", tools, PROFILES.WORKER, cwd=cwd)
    held = granting.granted(giver, asked)
    assert held.cwd == given
    if given is not None:
        check_directory(giver, asked, held)
    else:
        with pytest.raises(AgentSpawnError, match="Give a name, which is below '/files/nova/a'"):
            check_directory(giver, asked, held)


@proves("orchestration.directories")
@pytest.mark.parametrize(
    ("tools", "writes"), [(["Read", "audio_speak"], True), (["Read", "audio"], True), (["Read"], False)]
)
def test_a_child_with_a_tool_of_a_capability_that_writes_files_writes(tools: list[str], writes: bool) -> None:
    parent = AgentSpec(name="p", trust="controlled", capabilities={"audio": CapabilityGrant()})
    known: CapabilityTools = {"audio": {"audio_transcribe": "reads", "audio_speak": "writes-files"}}
    child = granted(parent, "WORKER", tools, PROFILES.WORKER, known)
    assert (child.native, child.writes) == (("Read",), writes)
