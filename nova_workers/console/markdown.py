"""Text that agents, tools and people wrote, as safe HTML.

Markdown is parsed without raw HTML, highlighted by classes (the page's policy permits no inline style), and then cut
down to a list of permitted elements. Images are never loaded: an image of an agent's answer would tell its server who
reads it, and when.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape
from mdit_py_plugins.footnote import footnote_plugin
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from nova_workers.console.formulas import FORMULA_ATTRIBUTES, FORMULA_TAGS, Formulas, read_formulas

_HIGHLIGHTED_CHARS = 20_000
"""Longer code is shown without colours: they cost about 9 µs a character, and ten times its size."""
_MARKDOWN_CHARS = 200_000
"""What follows is shown as plain text: the rest of a text that no one reads on a page must not hold the process up."""
_NESTING = 20

_CODE_CLASS = "code"
_LANGUAGE_CHARS = 30
_FORMULAS = "formulas"
_COLOURED = "coloured"
"""How many characters of code may still have colours, in the environment of a rendering."""

_TAGS = (
    frozenset(
        {"p", "br", "hr", "em", "strong", "s", "code", "pre", "span", "div", "blockquote", "ul", "ol", "li", "a", "sup"}
        | {"h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "del", "button"}
    )
    | FORMULA_TAGS
)
_ATTRIBUTES = {
    **dict.fromkeys(FORMULA_TAGS, FORMULA_ATTRIBUTES),
    "a": {"href", "title", "target", "class"},
    "*": {"dir"},
    "button": {"type", "class", "data-copy-code"},
    "ol": {"start"},
    "code": {"class"},
    "div": {"class", "tabindex"},
    "span": {"class"},
    "pre": {"class", "tabindex"},
    "th": {"class"},
    "td": {"class"},
}
_SCHEMES = {"http", "https", "mailto"}
_DIRECTED = ("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table")
"""What has the direction of its own first letters."""
_BOXES = {"[ ] ": "☐", "[x] ": "☑"}


class _Renderer(RendererHTML):
    """Shows the host of a link, an image as a link, and code with its language."""

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """End a link with its host, unless the text is the address."""
        opening = next(token for token in reversed(tokens[:idx]) if token.type == "link_open")
        host = _host(str(opening.attrGet("href") or ""))
        written = "".join(token.content for token in tokens[tokens.index(opening) : idx])
        return "</a>" if not host or host in written else f'</a> <span class="host">({escape(host)})</span>'

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write an image as a link: nothing is loaded from elsewhere."""
        source = str(tokens[idx].attrGet("src") or "")
        words, host = escape(tokens[idx].content or "image"), escape(_host(source) or source)
        return f'<a href="{escape(source)}" class="image">{words}</a> <span class="host">({host})</span>'

    def task(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write the box of a task."""
        return f'<span class="task">{tokens[idx].content}</span>'

    def footnote_ref(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write the number of a footnote. It is no link: answers of one page would need ids of their own."""
        return f"<sup>[{tokens[idx].meta['id'] + 1}]</sup>"

    def footnote_block_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Begin the list of footnotes, which stands at the end."""
        return '<div class="footnotes"><ol>'

    def footnote_block_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """End the list of footnotes."""
        return "</ol></div>"

    def footnote_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Begin a footnote."""
        return "<li>"

    def footnote_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """End a footnote."""
        return "</li>"

    def footnote_anchor(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write no way back, since there is none to the footnote."""
        return ""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write a block of code, highlighted by its language."""
        language, code = tokens[idx].info.split(maxsplit=1), tokens[idx].content
        # Of many blocks the first ones have colours.
        env[_COLOURED] -= len(code)
        return str(code_block(code, language[0] if language and env[_COLOURED] >= 0 else ""))

    def math_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write a formula in a line."""
        return env[_FORMULAS].render(tokens[idx].content, is_block=False)

    def math_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write a formula in a line of its own, which the keyboard scrolls if it is wide."""
        return f'<div class="formula" tabindex="0">{env[_FORMULAS].render(tokens[idx].content, is_block=True)}</div>'

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write an indented block of code."""
        return str(code_block(tokens[idx].content))

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write a cell with its alignment as a class."""
        return _cell(tokens[idx])

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write a cell with its alignment as a class."""
        return _cell(tokens[idx])


def _mark_tasks(state: StateCore) -> None:
    """Write a list item that begins with ``[ ]`` or ``[x]`` with a box, as people mark tasks."""
    for at, token in enumerate(state.tokens):
        first = token.children[0] if token.type == "inline" and token.children else None
        if first is None or first.type != "text" or at < 2 or state.tokens[at - 2].type != "list_item_open":
            continue
        if (box := _BOXES.get(first.content[:4].lower())) is not None:
            first.content = first.content[4:]
            mark = Token("task", "", 0, content=box)
            token.children = [mark, *(token.children or ())]


_markdown = MarkdownIt("commonmark", {"html": False, "maxNesting": _NESTING}, renderer_cls=_Renderer)
_markdown.enable(["table", "strikethrough"])
_markdown.core.ruler.push("tasks", _mark_tasks)
_markdown.use(footnote_plugin)
_markdown.use(read_formulas)
# The plugin has put its own rules, with links and ids, over those of the renderer's class.
_markdown.renderer = _Renderer(_markdown)
_cleaner = nh3.Cleaner(
    tags=set(_TAGS),
    attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
    url_schemes=_SCHEMES,
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values={
        **{tag: {"dir": "auto"} for tag in _DIRECTED},
        "a": {"target": "_blank"},
        # A wide one is scrolled by the keyboard, too.
        "table": {"dir": "auto", "tabindex": "0"},
    },
)


def to_html(text: str | None) -> Markup:
    """Return Markdown as safe HTML. What it costs is bounded, whatever the length of the text."""
    whole = text or ""
    env: dict[str, object] = {_COLOURED: _HIGHLIGHTED_CHARS, _FORMULAS: Formulas()}
    shown = Markup(_cleaner.clean(_markdown.render(whole[:_MARKDOWN_CHARS], env)))  # noqa: S704 - cleaned
    rest = whole[_MARKDOWN_CHARS:]
    plain = Markup('<pre class="code" tabindex="0">{}</pre>').format(rest) if rest else Markup()
    return Markup('<div class="prose">{}{}</div>').format(shown, plain)


def code_block(text: str, language: str = "") -> Markup:
    """Return code as HTML with classes for its colours, if its language is known. The keyboard scrolls it."""
    return Markup('<div class="code-block">{}<pre class="{}" tabindex="0"><code>{}</code></pre></div>').format(
        code_head(language), _CODE_CLASS, _highlighted(text, language)
    )


def code_head(language: str = "") -> Markup:
    """Return the line above code: its language, and the button that copies it."""
    button = Markup('<button type="button" class="copy-code" data-copy-code="">Copy</button>')
    return Markup('<div class="code-head"><span>{}</span>{}</div>').format(language[:_LANGUAGE_CHARS], button)


def _highlighted(text: str, language: str) -> str:
    if not language or len(text) > _HIGHLIGHTED_CHARS:
        return escape(text)
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return escape(text)
    return Markup(highlight(text, lexer, HtmlFormatter(nowrap=True)))  # noqa: S704 - Pygments escapes


def _cell(token: Token) -> str:
    style = str(token.attrGet("style") or "")
    side = next((side for side in ("right", "center") if side in style), None)
    return f"<{token.tag}>" if side is None else f'<{token.tag} class="{side}">'


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
