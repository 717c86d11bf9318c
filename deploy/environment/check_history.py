"""Check the messages of commits: ``python deploy/environment/check_history.py``. Part of ``make check``.

A subject says in at most 72 characters what changes; a body says why. Commits up to `_SINCE` are older than the rule.
Outside a git checkout, or in one that does not reach back so far, there is nothing to check.
"""

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_SINCE = "5259c1d"
_MAX_SUBJECT_CHARS = 72
_LANDED_WITHOUT = frozenset(
    {
        "709138401b80d809e0c9c9c4a04f0d965f3fac23",
        "c653c8851e717e4619f30004f30fd37abe634ab0",
    }
)
"""Commits without a body that others had built on before this check was run."""


def problems_of(message: str) -> list[str]:
    """Return what is wrong with a commit message; an empty list for a good one."""
    subject, _, rest = message.strip().partition("\n")
    body = rest.strip("\n")
    problems: list[str] = []
    if len(subject) > _MAX_SUBJECT_CHARS:
        problems.append(f"the subject has {len(subject)} characters; {_MAX_SUBJECT_CHARS} are allowed")
    if not subject[:1].isupper() or subject.endswith("."):
        problems.append("the subject begins with a capital letter and ends without a full stop")
    if not body:
        problems.append("there is no body that says why")
    elif not rest.startswith("\n"):
        problems.append("there is no blank line between subject and body")
    return problems


def main() -> int:
    """Print each commit with a bad message. Returns 1 where there is one, else 0."""
    listed = subprocess.run(
        ["git", "log", "--no-merges", "--format=%H%x00%B%x01", f"{_SINCE}.."],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        print("history: no git history to check")
        return 0
    bad = 0
    for entry in listed.stdout.split("\x01"):
        commit, _, message = entry.strip("\n").partition("\x00")
        for problem in problems_of(message) if commit and commit not in _LANDED_WITHOUT else ():
            bad += 1
            print(f"history: {commit[:8]} {message.partition(chr(10))[0]!r}: {problem}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
