"""Reads shell command lines with the grammar of bash.

Two readings of one tree. `visible_commands` are those that a line shows anywhere, also inside substitutions,
functions and here-documents: to forbid. `plain_commands` are all that a line does, and only of lines whose meaning does
not depend on the state of a shell: to permit. Each byte must then belong to a plain word, a known operator or a blank,
so that bash reads the same tokens as the grammar.
"""

import re
import time
from collections.abc import Iterator
from typing import Final

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_LANGUAGE: Final = Language(tree_sitter_bash.language())
_PARSE_CPU_S: Final = 0.05
"""16 KB of ordinary commands take 15 ms. Recovery from errors is not linear: 1.4 s for 15 KB of ``x=(`` (measured)."""

_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")
"""To bash, bytes of words that belong to no name. The grammar's scanner looks characters up in tables of 256 without a
check, and ends the process at some of those beyond (0.25.1), so it is given a sign of this kind instead."""

_LISTS: Final = frozenset({"program", "list", "pipeline", "subshell", "compound_statement", "redirected_statement"})
_COMMANDS: Final = frozenset({"command", "declaration_command", "unset_command"})
_WORDS: Final = frozenset({"word", "number", "string", "raw_string", "concatenation", "variable_assignment"})
_SEPARATORS: Final = frozenset({";", "&", "|", "&&", "||", "|&"})
_GROUPS: Final = frozenset({"(", ")", "{", "}"})
_TO_FILE: Final = frozenset({">", ">>", ">|", "&>", "&>>", "<"})
_TO_DESCRIPTOR: Final = frozenset({">&", "<&"})

_PLAIN_WORD: Final = re.compile(r"""(?:\w|[./:=@%+,^~#!-]|"[^"$`\\\x00-\x1f\x7f]*"|'[^'\x00-\x1f\x7f]*')+""")
"""A word without expansion of any kind: no variable, substitution, escape, brace, tilde or name pattern, and in one
line."""
_TILDE: Final = re.compile(r"(?:^|[:=])~")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_./+:@%,-]+")
_QUOTES: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_ESCAPE: Final = re.compile(r"\\(?:\n|(.))", re.DOTALL)
_RESERVED: Final = frozenset(
    "if then else elif fi do done case esac while until for select function in coproc [[ ]]".split()
)
_WORD_ENDS: Final = b" \t;|&()<>"
_BLANKS: Final = " \t\n"
"""What bash leaves out at both ends of a line. All other white space is a part of a word."""


class ShellLine:
    """A command line that the grammar knows."""

    def __init__(self, root: Node, source: bytes) -> None:
        self._root = root
        self._source = source

    @classmethod
    def parse(cls, text: str) -> "ShellLine | None":
        """Return the line; None if it has errors, or takes too long to read."""
        end_s = time.thread_time() + _PARSE_CPU_S
        try:
            source = text.strip(_BLANKS).encode()
            known = _NOT_ASCII.sub(b"%", source)
            tree = Parser(_LANGUAGE).parse(
                lambda at, _: known[at:], progress_callback=lambda _, __: time.thread_time() > end_s
            )
        except ValueError:
            # A lone surrogate, or what the library raises for a reading that was canceled.
            return None
        return None if tree.root_node.has_error else cls(tree.root_node, source)

    def plain_commands(self) -> tuple[tuple[str, ...], ...]:
        """Return the words of all its commands, without quotes; nothing if it does or hides anything else."""
        reading = _PlainReading(self._source)
        return tuple(reading.commands) if reading.read(self._root) else ()

    def visible_commands(self) -> Iterator[list[str]]:
        """Yield the words of each simple command that it shows, however deep."""
        for node in _all_nodes(self._root):
            if node.type in _COMMANDS:
                words = [_literal(child, self._source) for child in node.children if "redirect" not in child.type]
                yield [word for word in words if word]

    def visible_writes(self) -> Iterator[str]:
        """Yield each file that it redirects output to, as in ``> name``."""
        for node in _all_nodes(self._root):
            target = node.child_by_field_name("destination") if node.type == "file_redirect" else None
            if target is not None and any(">" in child.type for child in node.children):
                yield f"> {_literal(target, self._source)}"


class _PlainReading:
    """Reads a line from left to right, and stops at the first thing that is not plain."""

    def __init__(self, source: bytes) -> None:
        self.commands: list[tuple[str, ...]] = []
        self._source = source
        self._end = 0
        self._operator = ";"
        """The last token, if it was an operator; else empty."""

    def read(self, root: Node) -> bool:
        """Return whether the whole line is plain."""
        ahead = [root]
        while ahead:
            node = ahead.pop()
            if node.type in _LISTS:
                ahead += reversed(node.children)
            elif not self._take(node):
                return False
        return not self._source[self._end :].strip(b" \t")

    def _take(self, node: Node) -> bool:
        if node.type in _COMMANDS:
            return self._take_command(node)
        if node.type == "file_redirect":
            return self._take_redirection(node)
        return node.type in _SEPARATORS | _GROUPS and self._take_operator(node)

    def _take_command(self, node: Node) -> bool:
        words: list[str] = []
        name: str | None = None
        for child in node.children:
            if child.type == "file_redirect":
                if not self._take_redirection(child):
                    return False
                continue
            word = self._take_word(child)
            if word is None:
                return False
            words.append(word)
            name = word if name is None and child.type != "variable_assignment" else name
        if name is not None and (_PLAIN_NAME.fullmatch(name) is None or name in _RESERVED):
            return False
        self.commands.append(tuple(words))
        return True

    def _take_word(self, node: Node) -> str | None:
        """Return a word without its quotes; None if it is not plain, or bash would end it elsewhere."""
        if node.type == "command_name" and node.child_count == 1:
            node = node.children[0]
        if (node.is_named and node.type not in _WORDS) or not self._follows(node):
            return None
        if self._operator == "" and node.start_byte == self._end:
            return None
        text = self._source[node.start_byte : node.end_byte].decode()
        after = self._source[node.end_byte : node.end_byte + 1]
        if after not in _WORD_ENDS or (after in b"<>" and after and text.isdigit()):
            return None
        if _PLAIN_WORD.fullmatch(text) is None or text.startswith("#") or _TILDE.search(text):
            return None
        self._end, self._operator = node.end_byte, ""
        return _QUOTES.sub(lambda found: found[1] or found[2] or "", text)

    def _take_redirection(self, node: Node) -> bool:
        """Accept redirections to and from nothing, and between the descriptors of a command."""
        parts = list(node.children)
        if parts and parts[0].type == "file_descriptor":
            descriptor = parts.pop(0)
            apart = self._operator != "" or descriptor.start_byte > self._end
            if not apart or not self._follows(descriptor) or not parts or parts[0].start_byte != descriptor.end_byte:
                return False
            self._end, self._operator = descriptor.end_byte, ""
        if len(parts) != 2 or not self._take_operator(parts[0]):
            return False
        target = self._take_word(parts[1])
        raw = self._source[parts[1].start_byte : parts[1].end_byte].decode()
        if target is None or target != raw:
            return False
        if parts[0].type in _TO_DESCRIPTOR:
            return len(raw) == 1 and raw in "0123456789"
        return parts[0].type in _TO_FILE and raw == "/dev/null"

    def _take_operator(self, node: Node) -> bool:
        """Take an operator whose bytes bash reads as this operator, too."""
        text = self._source[node.start_byte : node.end_byte].decode()
        if text != node.type or not self._follows(node):
            return False
        touching = self._operator != "" and node.start_byte == self._end and node.start_byte > 0
        opens = text == "(" and self._operator in _SEPARATORS
        closed = self._operator in {")", "}"} and text not in {"(", "{", "}"}
        if touching and not opens and not closed and not (self._operator == ";" and text in {")", "}"}):
            return False
        if text in "{}" and not self._stands_alone(node):
            return False
        self._end, self._operator = node.end_byte, text
        return True

    def _stands_alone(self, node: Node) -> bool:
        before = self._source[max(node.start_byte - 1, 0) : node.start_byte]
        after = self._source[node.end_byte : node.end_byte + 1]
        return before in b" \t;" and after in (b" \t" if node.type == "{" else _WORD_ENDS)

    def _follows(self, node: Node) -> bool:
        """Return whether only blanks lie between the last token and this one."""
        return node.start_byte >= self._end and not self._source[self._end : node.start_byte].strip(b" \t")


def _all_nodes(root: Node) -> Iterator[Node]:
    ahead = [root]
    while ahead:
        node = ahead.pop()
        yield node
        ahead += reversed(node.children)


def _literal(node: Node, source: bytes) -> str:
    """Return a word without quotes and escapes. Expansions stay as they are written."""
    if node.type in ("command_name", "concatenation"):
        # The grammar nests these no deeper than a concatenation in a name.
        return "".join(_literal(child, source) for child in node.children)
    text = source[node.start_byte : node.end_byte].decode(errors="replace")
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "string":
        text = text[1:-1]
    elif node.type == "ansi_c_string":
        text = text[2:-1]
    return _ESCAPE.sub(lambda found: found[1] or "", text)
