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
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

_HIGHLIGHTED_CHARS = 50_000
"""Longer code is shown without colours: they cost about 1 µs a character."""
_NESTING = 20

_CODE_CLASS = "code"

_TAGS = frozenset(
    {"p", "br", "hr", "em", "strong", "s", "code", "pre", "span", "div", "blockquote", "ul", "ol", "li", "a", "sup"}
    | {"h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "del"}
)
_ATTRIBUTES = {
    "a": {"href", "title", "target", "class"},
    "ol": {"start"},
    "code": {"class"},
    "div": {"class"},
    "span": {"class"},
    "pre": {"class", "tabindex"},
    "th": {"class"},
    "td": {"class"},
}
_SCHEMES = {"http", "https", "mailto"}


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

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write a block of code, highlighted by its language."""
        language = tokens[idx].info.split(maxsplit=1)
        return str(code_block(tokens[idx].content, language[0] if language else ""))

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write an indented block of code."""
        return str(code_block(tokens[idx].content))

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write a cell with its alignment as a class."""
        return _cell(tokens[idx])

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write a cell with its alignment as a class."""
        return _cell(tokens[idx])


_markdown = MarkdownIt("commonmark", {"html": False, "maxNesting": _NESTING}, renderer_cls=_Renderer)
_markdown.enable(["table", "strikethrough"])
_cleaner = nh3.Cleaner(
    tags=set(_TAGS),
    attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
    url_schemes=_SCHEMES,
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values={"a": {"target": "_blank"}},
)


def to_html(text: str | None) -> Markup:
    """Return Markdown as safe HTML."""
    return Markup('<div class="prose">{}</div>').format(Markup(_cleaner.clean(_markdown.render(text or ""))))  # noqa: S704 - cleaned


def code_block(text: str, language: str = "") -> Markup:
    """Return code as HTML with classes for its colours, if its language is known. The keyboard scrolls it."""
    return Markup('<div class="code-block"><pre class="{}" tabindex="0"><code>{}</code></pre></div>').format(
        _CODE_CLASS, _highlighted(text, language)
    )


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
