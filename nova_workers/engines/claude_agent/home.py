"""The program's home for one turn: a private directory that is removed with the turn, and the environment for it.

The program sees no settings, credentials, memories or sessions of the machine's user, only those of the turn. Only
model calls leave the machine: telemetry, updates and error reports are off.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from claude_agent_sdk import project_key_for_directory

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.skills import SKILL_MD, SkillDirectory

__all__ = ["Home", "make_home", "sweep"]

_QUIET = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_AUTOUPDATER",
    "DISABLE_GROWTHBOOK",
    "DISABLE_BUG_COMMAND",
    "DISABLE_INSTALLATION_CHECKS",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE",
)
"""Disables network traffic that no turn requested."""
_PLAIN = (
    # A turn ends with its result: nothing may continue in the background or on a schedule.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    "CLAUDE_CODE_DISABLE_CRON",
    # Our configuration determines an agent's knowledge and abilities.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS",
    "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS",
    # After a broken stream it would repeat the whole answer, although tokens were already forwarded.
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK",
    # The program refuses root to bypass permissions unless this variable is set. The operator decided about that by
    # giving the agent unrestricted trust.
    "IS_SANDBOX",
)
_SKILLS = Path(".claude", "skills")
_PREFIX = "nova-claude-"
_STALE_S = 2 * 86_400.0
"""Age at which a home is stale; no turn lasts this long."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where the program runs.

    Attributes:
        base: The private directory.
        cwd: The working directory, resolved; a private empty one where the turn has none.
        roots: Directories that tools on files are confined to, resolved, `cwd` first if the turn has one.
        readable: Further directories, resolved, whose files they can read and not write.
        skills: Names of the skills in the working directory that the turn does not bring itself.
        assigned: Names of the skills that the turn brings.
    """

    base: Path
    cwd: Path
    roots: tuple[Path, ...]
    readable: tuple[Path, ...]
    skills: tuple[str, ...]
    assigned: tuple[str, ...]

    @property
    def shelf(self) -> Path:
        """Where the private user's skills are: those that the turn brings, and with `offer_skills` all."""
        return self.base / "config" / "skills"

    def environment(self, inherited: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
        """Return the program's environment."""
        own = {
            "HOME": str(self.base / "home"),
            "CLAUDE_CONFIG_DIR": str(self.base / "config"),
            "TMPDIR": str(self.base / "tmp"),
            "CLAUDE_CODE_TMPDIR": str(self.base / "tmp"),
            "PWD": str(self.cwd),
            "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        }
        return {**inherited, **dict.fromkeys((*_QUIET, *_PLAIN), "1"), **own, **more}

    def write_session(self, session_id: str, entries: Sequence[JsonObject]) -> None:
        """Put a session where the program looks for it."""
        directory = self.base / "config" / "projects" / project_key_for_directory(self.cwd)
        directory.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)
        (directory / f"{session_id}.jsonl").write_text("".join(lines), encoding="utf-8")

    def write_prompt(self, text: str) -> Path:
        """Write the system prompt to a file: arguments have a length limit, and every user can read them."""
        path = self.base / "prompt.txt"
        path.write_text(text, encoding="utf-8")
        return path

    def write_skills(self, skills: Sequence[SkillDirectory]) -> None:
        """Write the turn's own skills, as the private user's.

        Not into the working directory: turns of the agent that run at the same time share that, it outlives them, and
        the agent may write there. Of the front matter the program gets the name and the description: what else it
        takes (tools, hooks) would widen what the agent may do.
        """
        for skill in skills:
            directory = self.shelf / skill.name
            directory.mkdir(parents=True)
            # JSON's strings are YAML's too.
            front = f"---\nname: {json.dumps(skill.name)}\ndescription: {json.dumps(skill.description)}\n---\n\n"
            (directory / SKILL_MD).write_text(f"{front}{skill.body}\n", encoding="utf-8")
            for file in skill.files:
                path = directory / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.content)
                if file.executable:
                    path.chmod(0o700)

    def offer_skills(self) -> None:
        """Offer the working directory's skills as the private user's.

        As the project's they would come with the project's settings, and those start programs of their choice: an
        agent that may write files could give itself a shell.
        """
        self.shelf.mkdir(exist_ok=True)
        for name in self.skills:
            (self.shelf / name).symlink_to(self.cwd / _SKILLS / name, target_is_directory=True)

    def remove(self) -> None:
        """Remove the private directory."""
        shutil.rmtree(self.base, ignore_errors=True)


def make_home(
    cwd: str | None, directories: Sequence[str], skills: Sequence[SkillDirectory] = (), *, readable: Sequence[str] = ()
) -> Home:
    """Make a private directory, with the skills that the turn brings.

    Raises:
        EngineFailure: One of the turn's directories is not there, or the disk takes no skills.
    """
    roots = tuple(_resolved(path) for path in (*((cwd,) if cwd else ()), *directories))
    shown = tuple(_resolved(path) for path in readable)
    base = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    for name in ("home", "config", "tmp", "work"):
        (base / name).mkdir(mode=0o700)
    where = roots[0] if roots else base / "work"
    assigned = tuple(skill.name for skill in skills)
    there = sorted(path.parent.name for path in (where / _SKILLS).glob(f"*/{SKILL_MD}"))
    own = tuple(name for name in there if name not in assigned)
    home = Home(base, where, roots, shown, own, assigned)
    try:
        home.write_skills(skills)
    except OSError as error:
        home.remove()
        raise EngineFailure(
            f"The agent's skills cannot be written to {str(base)!r}: {error.strerror}.", kind="unknown", retryable=True
        ) from error
    return home


def sweep() -> None:
    """Remove stale homes of killed workers."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                shutil.rmtree(path, ignore_errors=True)


def _resolved(path: str) -> Path:
    resolved = Path(os.path.realpath(path))
    if not resolved.is_dir():
        raise EngineFailure(
            f"The agent's directory {path!r} is not there on this worker. Create it, or take it away from the agent.",
            kind="unknown",
            retryable=False,
        )
    return resolved
