"""No command line gets around the patterns that permit commands.

More random lines: `TEST_EXAMPLES=5000 pytest tests/unit/tools/test_shell_bypasses.py`
"""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_workers.contracts.agents import Permissions
from nova_workers.domain.tool_policy.rules.commands import MAX_LINE_CHARS
from nova_workers.domain.tool_policy.rules.policy import CommandPolicy, ToolPolicy
from tests.requirements import proves

_EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "0"))

LISTED: dict[str, Any] = {"allow_commands": ("echo *", "ok", "ok *"), "unlisted_commands": "deny"}
DOUBTED: dict[str, Any] = {"ask_commands": ("evil*",)}


def _kind(command: str, **permissions: Any) -> str:
    policy = ToolPolicy("unrestricted", CommandPolicy(Permissions(**permissions)))
    return policy.judge("Bash", {"command": command}).kind


BYPASSES = (
    # redirections that end elsewhere than they seem to
    'echo x >&1"/../f"',
    'echo x >/dev/null""x',
    "echo x >/dev/null''x",
    "echo x >/dev/null\\x",
    "echo x >/dev/null$x",
    "echo x >/dev/null/../../tmp/f",
    "echo x >/dev/nullé",
    "echo x >f",
    "echo x >>f",
    "echo x >|f",
    "echo x &>f",
    "echo x &>>f",
    "echo x >&f",
    "echo x <>f",
    "echo x >& f",
    "echo x 2>&1f",
    "echo x >&1 >f",
    "echo x {fd}>f",
    "echo x 12>&1f",
    "echo x >&1'f'",
    "echo x >&-",
    "echo x <f",
    "echo x <<<f >g",
    ">f",
    ">f echo x",
    "2>f echo x",
    "exec >f",
    # quotes
    "e'vi'l",
    '"ev"il',
    '"ok x/../../evil"',
    "'ok x'",
    '"ok"; "evil"',
    "echo 'x' ; evil",
    'echo "x" \'open',
    "echo $'x' ; evil",
    "echo $'\\'; evil #'",
    'echo $"x"; evil',
    'echo "\'"; evil; echo "\'"',
    "'echo' x\nevil",
    # expansions and substitutions
    "echo $(evil)",
    "echo `evil`",
    'echo "$(evil)"',
    'echo "`evil`"',
    "echo ${x:-$(evil)}",
    "echo ${x:=y}",
    "echo $((x[$(evil)]))",
    "echo $[x]",
    "echo $x",
    "$x",
    "ok$IFS-x",
    "echo <(evil)",
    "echo >(evil)",
    "echo {a,b}",
    "{evil,x}",
    "echo *",
    "echo ev?l",
    "/bin/ev[i]l",
    "echo [a-z]",
    "echo ~root",
    "echo a=~/x",
    "echo @(a|b)",
    "((x=1))",
    "((x[$(evil)]))",
    "let x=1",
    "[[ -v x[$(evil)] ]]",
    # here-documents
    "ok <<E\n$(evil)\nE",
    "ok <<'E'\nx\nE\nevil",
    "ok <<-E\n\tE\nevil",
    "ok <<E >f\nE",
    "echo <<E; evil\nE",
    "ok <<''\n\nevil",
    "ok <<\\E\nE\nevil",
    # lines, comments and blanks that are none
    "ok\nevil",
    "ok \\\nevil",
    "echo x # \nevil",
    "echo x #' \n evil '",
    "ok\revil",
    "ok\u2003evil",
    "ok\u00a0evil",
    "ok\u0085evil",
    "ok\x0bevil",
    "ok\x0cevil",
    "ok\x00; evil",
    "\u2003ok",
    "ok\u2028",
    "echo \udc80; evil",
    # other words in front
    "PATH=. ok",
    "LD_PRELOAD=./x ok",
    "PAGER=evil ok",
    "x=1; ok",
    "PATH=.; ok",
    'PATH+=":." ok',
    "x[$(evil)]=1 ok",
    "x=(evil) ok",
    "env ok",
    "env PATH=. ok",
    "command ok",
    "exec ok",
    "eval ok",
    "eval 'evil'",
    "builtin ok",
    "sudo ok",
    "source ok",
    ". ok",
    "! ok",
    "time ok",
    "coproc ok",
    "nohup ok",
    # functions, aliases and compound commands
    "echo() { evil; }; echo x",
    "function echo { evil; }; echo x",
    "ok () ( evil )",
    "alias echo=evil; echo x",
    "hash -p ./evil ok; ok",
    "enable -f ./x ok; ok",
    "trap evil EXIT",
    "export PATH=.; ok",
    "declare -x PATH=.; ok",
    "if evil; then ok; fi",
    "while evil; do ok; done",
    "for x in y; do evil; done",
    "case x in x) evil;; esac",
    "select x in y; do evil; done",
    "{ evil; }",
    "(evil)",
    "ok | evil",
    "ok |& evil",
    "ok & evil",
    "ok && evil",
    "ok || evil",
    "ok;evil",
    "ok&evil",
    "evil;",
    "evil&",
    "ok;;evil",
    "ok; }; evil",
    # names
    "./ok",
    "../ok",
    "echo/../evil x",
)


@pytest.mark.parametrize("command", BYPASSES)
@proves("security.shell")
def test_a_line_that_does_or_hides_more_is_not_permitted(command: str) -> None:
    assert _kind(command, **LISTED) == "deny"
    rule = {"tool": "Bash", "pattern": "echo *", "decision": "always"}
    assert _kind(command, approvals=(rule,), **LISTED) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "ok",
        "  ok  ",
        "ok\n",
        "ok;",
        "ok &",
        "echo x && ok || echo y; ok | ok |& ok",
        "(ok; ok) | ok",
        "( (ok) )",
        "{ ok; ok; } | ok",
        "echo 'a b' \"c d\" e'f'\"g\" h",
        "echo 'it is; evil > f $(x) \\ `y`'",
        'echo "x; (y) | z > f"',
        "echo HEAD~1 HEAD^ a=b 5% +x @y 1,2 feature#1 x!",
        "echo Zoë 'naïve\u00a0text'",
        "ok 2>&1",
        "ok >/dev/null",
        "ok > /dev/null 2>&1 | ok",
        "ok &>/dev/null; ok 2> /dev/null </dev/null",
        "2>/dev/null ok",
        "ok >|/dev/null; ok >>/dev/null; ok 3>&1",
    ],
)
def test_ordinary_lines_of_permitted_commands_are_allowed(command: str) -> None:
    assert _kind(command, **LISTED) == "allow"


@pytest.mark.parametrize(
    ("command", "pattern", "kind"),
    [
        ("CI=1 npm test", "CI=1 npm test", "allow"),
        ("export A=1", "export *", "allow"),
        ("./scripts/a b", "./scripts/*", "allow"),
        ("./scripts/../evil b", "./scripts/*", "deny"),
        ("../tool b", "../tool *", "allow"),
        ("../evil/tool b", "*/tool *", "deny"),
        ('"./run x" y', "./run *", "deny"),
        ('npm "run evil"', "npm run *", "deny"),
        ('npm run "a b"', "npm run *", "allow"),
        ('"CI=1" npm', "CI=1 npm", "deny"),
    ],
)
def test_a_pattern_permits_a_program_and_its_arguments_by_their_words(command: str, pattern: str, kind: str) -> None:
    assert _kind(command, allow_commands=(pattern,), unlisted_commands="deny") == kind


@pytest.mark.parametrize(
    "command",
    ["evil", '"evil" x', "e'v'il", "x=`evil`", "cat <<E\n$(evil)\nE", "if true; then\nevil\nfi", "f() { evil; }"],
)
@proves("security.shell")
def test_what_must_be_asked_is_found_wherever_a_line_shows_it(command: str) -> None:
    assert _kind(command, **DOUBTED) == "ask"


@pytest.mark.parametrize("command", ["echo )", "echo 'open", "if x", "\udc80", "x=(" * 5_000])
@proves("security.shell")
def test_a_line_that_cannot_be_read_is_asked_about_where_patterns_forbid_something(command: str) -> None:
    assert _kind(command, **DOUBTED) == "ask"
    assert _kind(command, approvals=({"tool": "Bash", "decision": "always"},), deny_commands=("evil*",)) == "ask"
    never = {"tool": "Bash", "pattern": "evil*", "decision": "never"}
    assert _kind(command, approvals=(never,)) == "deny"


@pytest.mark.parametrize("target", ["/dev/sda", '"/dev/sda"', "/dev/'sda'"])
def test_a_write_to_a_disk_is_refused_however_it_is_quoted(target: str) -> None:
    assert _kind(f"echo x 2> {target}") == "deny"


HOSTILE = (
    "x=(",
    "<<a\n",
    "<<<",
    "$(",
    "`",
    "((",
    "${a/",
    "(",
    "{",
    "if ",
    "case x in ",
    "[[ ",
    "$'",
    "a ",
    "a;",
    "<(",
    "\\",
)


@pytest.mark.parametrize("piece", HOSTILE)
@proves("security.shell")
def test_a_hostile_line_is_judged_in_bounded_time(piece: str) -> None:
    command = (piece * MAX_LINE_CHARS)[: MAX_LINE_CHARS - 1]
    begun_s = time.thread_time()
    _kind(command, **LISTED)
    assert time.thread_time() - begun_s < 0.5


@given(
    st.text(st.characters(min_codepoint=0xE000), min_size=1, max_size=50), st.sampled_from(["{}", "<<{}", "x={}<{}"])
)
def test_characters_of_any_plane_are_read(text: str, form: str) -> None:
    assert _kind(form.format(text, text), **LISTED) == "deny"


_SIGNS = "'\"\\$`;&|()<>{}[]*?~#!=+-^, \t\n\r012"
_WORDS = ("ok", "echo", "evil", "f", "x", "/dev/null", "eval ", "env ", "PATH=.", "é", "\u00a0", "./", "../")
_OPERATORS = (" >", ">&", "&>", ">|", "2>&1", "<<E", "\nE\n", "$(", "${", "$((", " && ", "; ", " | ")
_PIECES = st.sampled_from((*_SIGNS, *_WORDS, *_OPERATORS))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program ``evil``, which leaves a trace, also by its path, and ``ok``, which does nothing."""
    root = tmp_path_factory.mktemp("stage")
    (root / "bin").mkdir()
    (root / "here").mkdir()
    for program, text in (("bin/ok", ":"), ("bin/evil", "> ../trace"), ("here/evil", "> ../trace")):
        (root / program).write_text(f"#!/bin/sh\n{text}\n")
        (root / program).chmod(0o755)
    return root


_LINES = (
    "echo x && ok || echo y; ok | ok",
    "(ok; ok) | { ok; echo x; }",
    "echo 'a b' \"c d\" e'f'\"g\" h ok evil",
    "ok >/dev/null 2>&1; echo f evil",
    "2>/dev/null ok evil & ok </dev/null",
    "echo f",
)


def _changed(line: str, changes: list[tuple[int, str]]) -> str:
    for number, piece in changes:
        at = number % (len(line) + 1)
        line = line[:at] + piece + line[at:]
    return line


_COMMANDS = st.lists(_PIECES, min_size=1, max_size=14).map("".join) | st.builds(
    _changed, st.sampled_from(_LINES), st.lists(st.tuples(st.integers(0, 99), _PIECES), max_size=3)
)


@settings(max_examples=_EXAMPLES or 100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_COMMANDS)
@proves("security.shell")
def test_bash_does_nothing_else_for_a_line_that_is_allowed(stage: Path, command: str) -> None:
    if "\x00" in command or _kind(command, **LISTED) != "allow":
        return
    env = {"PATH": str(stage / "bin"), "LANG": os.environ.get("LANG", "C.UTF-8"), "HOME": str(stage)}
    done = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-c", command],
        cwd=stage / "here",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=10,
        check=False,
    )
    assert b"command not found" not in done.stderr
    assert b"syntax error" not in done.stderr
    found = {str(path.relative_to(stage)) for path in stage.rglob("*")}
    assert found == {"bin", "here", "bin/ok", "bin/evil", "here/evil"}, command
