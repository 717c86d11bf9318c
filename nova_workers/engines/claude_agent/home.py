"""The program's home for one turn: a private directory that is removed with the turn, and the environment for it.

The program sees no settings, credentials, memories or sessions of the machine's user, only those of the turn. Only
model calls leave the machine: telemetry, updates and error reports are off.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from claude_agent_sdk import project_key_for_directory

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.skills import SKILL_MD, SkillDirectory
from nova_workers.engines.programs.home import Home
from nova_workers.engines.programs.home import make_home as make_private_home

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
_CONFIG = "config"
_SHELF = f"{_CONFIG}/skills"


@dataclass(frozen=True, slots=True)
class ClaudeHome:
    """Where the program runs.

    Attributes:
        private: The private directory.
        cwd: The working directory, resolved; a private empty one where the turn has none.
        roots: Directories that tools on files are confined to, resolved, `cwd` first if the turn has one.
        readable: Further directories, resolved, whose files they can read and not write.
        skills: Names of the skills in the working directory that the turn does not bring itself.
        assigned: Names of the skills that the turn brings.
    """

    private: Home
    cwd: Path
    roots: tuple[Path, ...]
    readable: tuple[Path, ...]
    skills: tuple[str, ...]
    assigned: tuple[str, ...]

    @property
    def shelf(self) -> Path:
        """Where the private user's skills are: those that the turn brings, and with `offer_skills` all."""
        return self.private.base / _SHELF

    def environment(self, inherited: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
        """Return the program's environment."""
        own = self.private.environment(self.cwd)
        own |= {
            "CLAUDE_CONFIG_DIR": str(self.private.base / _CONFIG),
            "CLAUDE_CODE_TMPDIR": own["TMPDIR"],
            "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        }
        return {**inherited, **dict.fromkeys((*_QUIET, *_PLAIN), "1"), **own, **more}

    def write_session(self, session_id: str, entries: Sequence[JsonObject]) -> None:
        """Put a session where the program looks for it."""
        lines = (json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)
        project = project_key_for_directory(self.cwd)
        self.private.write(f"{_CONFIG}/projects/{project}/{session_id}.jsonl", "".join(lines))

    @property
    def prompt(self) -> Path:
        """The file of the system prompt: arguments have a length limit, and every user can read them."""
        return self.private.base / "prompt.txt"

    def write_prompt(self, text: str) -> None:
        """Write the system prompt."""
        self.private.write(self.prompt.name, text)

    def write_skills(self, skills: Sequence[SkillDirectory]) -> None:
        """Write the turn's own skills, as the private user's.

        Not into the working directory: turns of the agent that run at the same time share that, it outlives them, and
        the agent may write there. Of the front matter the program gets the name and the description: what else it
        takes (tools, hooks) would widen what the agent may do.
        """
        for skill in skills:
            directory = f"{_SHELF}/{skill.name}"
            # JSON's strings are YAML's too.
            front = f"---\nname: {json.dumps(skill.name)}\ndescription: {json.dumps(skill.description)}\n---\n\n"
            self.private.write(f"{directory}/{SKILL_MD}", f"{front}{skill.body}\n")
            for file in skill.files:
                self.private.write(f"{directory}/{file.path}", file.content, executable=file.executable)

    def offer_skills(self) -> None:
        """Offer the working directory's skills as the private user's.

        As the project's they would come with the project's settings, and those start programs of their choice: an
        agent that may write files could give itself a shell.
        """
        self.shelf.mkdir(parents=True, exist_ok=True)
        for name in self.skills:
            (self.shelf / name).symlink_to(self.cwd / _SKILLS / name, target_is_directory=True)


def make_home(
    cwd: str | None, directories: Sequence[str], skills: Sequence[SkillDirectory] = (), *, readable: Sequence[str] = ()
) -> ClaudeHome:
    """Make a private directory, with the skills that the turn brings.

    Raises:
        EngineFailure: One of the turn's directories is not there, or there is no place for a private one.
    """
    roots = tuple(_resolved(path) for path in (*((cwd,) if cwd else ()), *directories))
    shown = tuple(_resolved(path) for path in readable)
    private = make_private_home("claude")
    where = roots[0] if roots else private.work
    assigned = tuple(skill.name for skill in skills)
    there = sorted(path.parent.name for path in (where / _SKILLS).glob(f"*/{SKILL_MD}"))
    own = tuple(name for name in there if name not in assigned)
    home = ClaudeHome(private, where, roots, shown, own, assigned)
    try:
        (private.base / _CONFIG).mkdir(mode=0o700)
        home.write_skills(skills)
    except OSError as error:
        private.remove()
        raise EngineFailure(
            f"The agent's skills cannot be written to {str(private.base)!r}: {error.strerror}.",
            kind="unknown",
            retryable=True,
        ) from error
    return home


def _resolved(path: str) -> Path:
    resolved = Path(os.path.realpath(path))
    if not resolved.is_dir():
        raise EngineFailure(
            f"The agent's directory {path!r} is not there on this worker. Create it, or take it away from the agent.",
            kind="unknown",
            retryable=False,
        )
    return resolved
