"""What a shell command line says, as far as it can be known without running it.

A shell line can hide commands: variables, ``eval``, a script that it downloads. So it is parsed for two uses. To
*forbid*, every visible simple command is checked, without its wrappers. To *permit* a line (`CommandLine.plain`),
nothing in it may be hidden.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, Final

_SYNTAX: Final = "nova_workers.domain.tool_policy.rules.shell_syntax"
"""Imported by name with the first line: the API reads one only to permit it for good, and needs no grammar before."""

MAX_LINE_CHARS = 16_384
MAX_COMMANDS = 1_000
"""Reading is done on the event loop: beyond these it would be felt (8,000 commands: 55 ms, measured)."""

_ANY_SEPARATOR = re.compile(r"[;&|\n()`]+")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time"})
_WRAPPERS = frozenset({"env", "nohup", "command", "exec", "builtin", "time", "nice", "ionice", "setsid", "stdbuf"})
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh"})
_ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\+?=")
_INNER_BLANKS = re.compile(r"\s")
_MAX_DEPTH = 3

BUILT_IN_DENIALS = (
    "sudo *",
    "su",
    "su *",
    "doas *",
    "mkfs*",
    "wipefs *",
    "dd * of=/dev/*",
    "dd of=/dev/*",
    "shutdown",
    "shutdown *",
    "reboot",
    "reboot *",
    "halt",
    "halt *",
    "poweroff",
    "poweroff *",
    "init 0",
    "init 6",
    "kill * -1",
    "*> /dev/sd*",
    "*>/dev/sd*",
    "*> /dev/nvme*",
    "*>/dev/nvme*",
    "chmod -R * /",
    "chown -R * /",
    "*:(){*:|:*",
    "* /etc/shadow*",
)
"""A guard against mistakes, not against an adversarial model: that needs trust levels, a sandbox or another machine."""

_RECURSIVE = re.compile(r"^(?:-[a-zA-Z]*[rR][a-zA-Z]*|--recursive)$")
_WIPED = frozenset({"/", "/*", "/.", "~", "~/", "~/*", "$HOME", "$HOME/", "$HOME/*", "${HOME}", "..", "../", "../*"})
_SYSTEM = re.compile(r"^/(?:bin|boot|dev|etc|home|lib|lib64|opt|proc|root|sbin|srv|sys|usr|var)(?:/\*?)?$")


@dataclass(frozen=True)
class CommandLine:
    """A command line that was read.

    Attributes:
        line: The whole, with its white space made single.
        commands: The simple commands that it shows, also in substitutions: for forbidding.
        bare: The same without paths, assignments and wrappers, those inside ``sh -c`` too, and ``> file`` for each file
            that output is redirected to.
        plain: The words of its simple commands, if they are all that it does; else nothing. For permitting.
        readable: Whether the grammar knows the line. Of any other, the visible words are all that is known.
        wipes: Whether it removes a whole system directory or home.
    """

    line: str
    commands: tuple[str, ...]
    bare: tuple[str, ...]
    plain: tuple[tuple[str, ...], ...]
    readable: bool
    wipes: bool

    @cached_property
    def visible(self) -> tuple[str, ...]:
        """All that a pattern which forbids is compared with."""
        return tuple(dict.fromkeys((self.line, *self.commands, *self.bare)))


@lru_cache(maxsize=4)
def read_command(text: str) -> CommandLine:
    """Read a command line. Each rule about a call reads the same one, hence the cache."""
    parsed = _parsed(text)
    # The shell would refuse most lines that cannot be read. The visible words are checked nevertheless.
    simple = _visible_words(text) if parsed is None else list(parsed.visible_commands())
    bare = tuple(_bare(simple))
    return CommandLine(
        line=" ".join(text.split()),
        commands=tuple(" ".join(words) for words in simple),
        bare=(*(" ".join(words) for words in bare), *(() if parsed is None else parsed.visible_writes())),
        plain=() if parsed is None else parsed.plain_commands(),
        readable=parsed is not None,
        wipes=any(_wipes(words) for words in bare),
    )


def _parsed(text: str) -> Any:
    return import_module(_SYNTAX).ShellLine.parse(text)


def permitting(patterns: Iterable[str], words: Sequence[str]) -> str | None:
    """Return the first pattern that permits a plain command, given as its words.

    A space in a pattern stands between words, never in one: ``"./run x/../../y"`` is no call of ``./run``. Nor does
    ``*`` lead the path of a program upwards.
    """
    text = " ".join(_INNER_BLANKS.sub("\x00", word) for word in words)
    program = next((word for word in words if _ASSIGNMENT.match(word) is None), "")
    climbs = ".." in program.split("/")
    for pattern in patterns:
        if fnmatch.fnmatchcase(text, pattern) and not (climbs and program not in pattern.split()):
            return pattern
    return None


def matching(patterns: Iterable[str], *texts: str) -> str | None:
    """Return the first pattern that one of the texts has the form of: ``*`` is any text, ``?`` any character."""
    for pattern in patterns:
        if any(fnmatch.fnmatchcase(text, pattern) for text in texts):
            return pattern
    return None


def _visible_words(text: str) -> list[list[str]]:
    return [words for part in _ANY_SEPARATOR.split(text) if (words := part.split())]


def _bare(simple: Iterable[Sequence[str]], depth: int = 0) -> Iterator[list[str]]:
    for words in simple:
        rest = list(words)
        while rest and (_ASSIGNMENT.match(rest[0]) or rest[0] in _KEYWORDS or _name(rest[0]) in _WRAPPERS):
            rest.pop(0)
            while rest and rest[0].startswith("-"):
                rest.pop(0)
        if not rest:
            continue
        rest[0] = _name(rest[0])
        yield rest
        inner = _inner(rest)
        if inner is not None and depth < _MAX_DEPTH:
            parsed = _parsed(inner)
            commands = _visible_words(inner) if parsed is None else parsed.visible_commands()
            yield from _bare(commands, depth + 1)


def _inner(words: Sequence[str]) -> str | None:
    """Return the command that a shell, ``eval`` or ``sudo`` runs."""
    if words[0] in _SHELLS:
        at = next((at for at, word in enumerate(words) if re.match(r"^-[a-z]*c$", word)), None)
        return words[at + 1] if at is not None and at + 1 < len(words) else None
    if words[0] in ("eval", "sudo", "doas", "xargs"):
        return " ".join(words[1:])
    return None


def _name(word: str) -> str:
    return word.rsplit("/", 1)[-1] or word


def _wipes(words: Sequence[str]) -> bool:
    if words[0] != "rm" or not any(_RECURSIVE.match(word) for word in words[1:]):
        return False
    targets = [re.sub(r"/+", "/", word) for word in words[1:] if not word.startswith("-")]
    return any(target in _WIPED or _SYSTEM.match(target) for target in targets)
