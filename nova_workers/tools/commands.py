"""What a shell command line says, as far as it can be known without running it.

A shell line can hide commands: variables, ``eval``, a script that it downloads. So it is parsed for two uses. To
*forbid*, every visible simple command is checked, without its wrappers. To *permit* a line
(`CommandLine.transparent`), nothing in it may be hidden.
"""

import fnmatch
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["BUILT_IN_DENIALS", "MAX_COMMANDS", "MAX_LINE_CHARS", "CommandLine", "matching", "read_command"]

MAX_LINE_CHARS = 16_384
MAX_COMMANDS = 1_000
"""Reading is done on the event loop: beyond these it would be felt (8,000 commands: 55 ms, measured)."""

_SEPARATORS = frozenset({";", "&", "|", "&&", "||", "|&", "\n", "(", ")", ";;", "{", "}"})
_ANY_SEPARATOR = re.compile(r"[;&|\n()`]+")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time"})
_WRAPPERS = frozenset({"env", "nohup", "command", "exec", "builtin", "time", "nice", "ionice", "setsid", "stdbuf"})
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh"})
_ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\+?=")
_HARMLESS_REDIRECTION = re.compile(
    r"(?:(?<!\S)\d|&)?>>?\s*/dev/null(?![\w/.-])|(?:(?<!\S)\d)?>&\d\b|<\s*/dev/null(?![\w/.-])"
)
_HIDING = re.compile(r"[`\\]|\$|[<>]|\n")
"""What makes a line say less than it does: substitution, expansion, redirection, escapes, a second line."""
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


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line that was read.

    Attributes:
        line: The whole, with its white space made single.
        commands: The simple commands in it, as written.
        bare: The same without paths, assignments and wrappers, and those inside ``sh -c`` too: for forbidding.
        transparent: Whether the simple commands are all that it does.
        wipes: Whether it removes a whole system directory or home.
    """

    line: str
    commands: tuple[str, ...]
    bare: tuple[str, ...]
    transparent: bool
    wipes: bool


def read_command(text: str) -> CommandLine:
    """Read a command line. One that has no end (an open quotation) is not transparent."""
    line = " ".join(text.split())
    try:
        simple = list(_simple_commands(text))
        open_ended = False
    except ValueError:
        # An apostrophe in a here-document, or a trick. The visible words are checked nevertheless.
        simple = [words for part in _ANY_SEPARATOR.split(text) if (words := part.split())]
        open_ended = True
    bare = tuple(_bare(simple))
    visible = _HARMLESS_REDIRECTION.sub(" ", text.strip())
    quiet = [] if open_ended else list(_simple_commands(visible))
    return CommandLine(
        line=line,
        commands=tuple(" ".join(words) for words in quiet),
        bare=tuple(" ".join(words) for words in bare),
        transparent=bool(quiet) and not _HIDING.search(visible),
        wipes=any(_wipes(words) for words in bare),
    )


def matching(patterns: Iterable[str], *texts: str) -> str | None:
    """Return the first pattern that one of the texts has the form of: ``*`` is any text, ``?`` any character."""
    for pattern in patterns:
        if any(fnmatch.fnmatchcase(text, pattern) for text in texts):
            return pattern
    return None


def _simple_commands(text: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars="();<>|&`")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for token in lexer:
        if token in _SEPARATORS or set(token) <= set("();&|`"):
            if words:
                yield words
            words = []
        else:
            words.append(token)
    if words:
        yield words


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
            try:
                yield from _bare(list(_simple_commands(inner)), depth + 1)
            except ValueError:
                continue


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
