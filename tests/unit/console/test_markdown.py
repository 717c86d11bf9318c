"""Text of agents and other strangers, as HTML."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from nova_workers.console.formulas import FORMULA_ATTRIBUTES, FORMULA_TAGS
from nova_workers.console.markdown import code_block, to_html
from tests.requirements import proves


class _Elements(HTMLParser):
    """Collects what an HTML text consists of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses |= {value or "" for name, value in attrs if name == "href"}


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<p style='position:fixed'>over everything</p>",
        "[click](javascript:alert(1))",
        "[click](  java\tscript:alert(1))",
        "[click](data:text/html;base64,PHNjcmlwdD4=)",
        "![x](javascript:alert(1))",
        "![track](https://evil.example/pixel.png)",
        "<a href='https://evil.example' onmouseover='alert(1)'>x</a>",
        '```"><script>alert(1)</script>\ncode\n```',
        "```python\n</code></pre><script>alert(1)</script>\n```",
        '[x](https://a.example/" onclick="alert(1))',
        '![" onerror="alert(1)](https://a.example/x)',
        "<svg><use href='#x' onload=alert(1)></svg>",
        "<form action='https://evil.example'><input name=key></form>",
        "<iframe src='https://evil.example'></iframe>",
        "[![x](https://evil.example/1)](https://evil.example/2)",
        "| a |\n| - |\n| <script>alert(1)</script> |",
        "<base href='https://evil.example'>",
        "<meta http-equiv=refresh content='0;url=https://evil.example'>",
        "a[^1] b[^x]\n\n[^1]: <script>alert(1)</script>\n[^x]: [y](javascript:alert(1)) ^[<img src=x>]",
        r"$\text{<img src=x onerror=alert(1)>}$ \(\mathrm{</math><script>alert(1)</script>}\)",
        "$$\n<a href='javascript:alert(1)'>x</a>\n$$",
        r"$\text{&lt;script&gt;alert(1)&lt;/script&gt;}$ \(\href{javascript:alert(1)}{x}\)",
        '[^"><script>alert(1)</script>]\n\n[^"><script>alert(1)</script>]: x',
    ],
)
def test_nothing_that_runs_or_loads_survives(text: str) -> None:
    found = _Elements()
    found.feed(str(to_html(text)))
    assert found.tags <= {
        "div",
        "p",
        "a",
        "span",
        "pre",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "blockquote",
        "sup",
        "ol",
        "li",
        # The button that copies code, whose attributes are fixed; and formulas.
        *("button", *FORMULA_TAGS),
    }
    assert found.attributes <= {
        *("class", "dir", "href", "rel", "tabindex", "target", "title", "type", "data-copy-code"),
        *FORMULA_ATTRIBUTES,
    }
    assert {address.partition(":")[0] for address in found.addresses} <= {"https"}


def test_a_link_shows_its_host_and_keeps_who_followed_it_to_itself() -> None:
    html = str(to_html("See [our page](https://docs.example.com/x?y=1)."))
    assert 'rel="noopener noreferrer nofollow"' in html
    assert 'target="_blank"' in html
    assert "(docs.example.com)" in html


def test_a_link_whose_text_is_its_address_shows_no_host_twice() -> None:
    assert "host" not in str(to_html("<https://docs.example.com/>"))


def test_an_image_is_a_link_with_its_words() -> None:
    html = str(to_html("![a chart](https://files.example.com/chart.png)"))
    assert 'href="https://files.example.com/chart.png"' in html
    assert ">a chart</a>" in html
    assert "(files.example.com)" in html


def test_tables_lists_and_code_are_shown() -> None:
    html = str(to_html("- one\n- two\n\n| a | b |\n| - | -: |\n| 1 | 2 |\n\n```python\ndef f(): ...\n```"))
    assert "<li>one</li>" in html
    assert '<td class="right">2</td>' in html
    assert '<span class="k">def</span>' in html


def test_code_of_an_unknown_language_is_text() -> None:
    assert "a &lt; b" in str(code_block("a < b", "no-such-language"))


def test_deep_nesting_ends() -> None:
    assert len(str(to_html(">" * 5_000 + " deep"))) < 200_000


def test_what_is_written_from_right_to_left_is_shown_so_beside_what_is_not() -> None:
    html = str(to_html("# שלום\n\nHello\n\n- مرحبا"))
    assert [f'<{tag} dir="auto">' in html for tag in ("h1", "p", "ul")] == [True, True, True]


def test_tasks_of_a_list_have_boxes() -> None:
    html = str(to_html("- [ ] first\n- [X] second\n- [y] third\n\n[ ] no item"))
    assert '<span class="task">☐</span>first' in html
    assert '<span class="task">☑</span>second' in html
    assert "[y] third" in html
    assert "[ ] no item" in html


def test_footnotes_stand_at_the_end_with_their_numbers_and_have_no_ids_or_links() -> None:
    html = str(to_html("Sales rose.[^a] Costs fell.^[Without *rent*.]\n\n[^a]: In the north.\n\nThe end."))
    assert "Sales rose.<sup>[1]</sup> Costs fell.<sup>[2]</sup>" in html
    notes = html.partition('<div class="footnotes">')[2]
    assert [text in notes for text in ("<li><p", "In the north.", "Without <em>rent</em>.")] == [True] * 3
    assert "The end." not in notes
    assert "href" not in html
    assert "id=" not in html


@proves("console.formulas")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("$E = mc^2$", '<math display="inline"><mrow><mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup>'),
        (r"\(a < b\)", '<math display="inline"><mrow><mi>a</mi><mo>&lt;</mo><mi>b</mi></mrow></math>'),
        ("$$\n\\frac{a}{b}\n$$", '<math display="block"><mrow><mfrac>'),
        ("text\n\\[ x \\]\ntext", '<div class="formula" tabindex="0"><math display="block"><mrow><mi>x</mi>'),
        ("> $$\n> x\n> $$", '<math display="block"><mrow><mi>x</mi></mrow></math>'),
        # Amounts of money, names of variables, code, and signs that are escaped.
        ("It costs $5 or $10, US$7 and $HOME/$USER", "It costs $5 or $10, US$7 and $HOME/$USER"),
        ("`$x$` and \\$x\\$", "<code>$x$</code> and $x$"),
        # What is no formula, defines commands, or is too long.
        (r"$\frac{$", r"<code>\frac{</code>"),
        (r"$\newcommand{\a}{\b\b}\a$", r"<code>\newcommand{\a}{\b\b}\a</code>"),
        ("$" + "x" * 2_001 + "$", '<p dir="auto">$xxx'),
    ],
)
def test_formulas_are_drawn_and_what_is_none_is_shown_as_written(text: str, shown: str) -> None:
    assert shown in str(to_html(text))


@proves("console.formulas")
def test_what_the_formulas_of_a_text_cost_is_bounded() -> None:
    html = str(to_html("$a+b$ " * 10_000))
    assert 1_000 < html.count("<math") < 3_000
    assert html.count("<math") + html.count("<code>a+b</code>") == 10_000


def test_what_a_long_answer_costs_is_bounded() -> None:
    code = "```python\n" + "def f(x):\n    return [y for y in x]\n" * 20 + "```\n\n"
    html = str(to_html(code * 1_000))
    assert 0 < html.count("<span") < 20_000, "The first blocks have colours."
    assert html.count("return") == 20_000, "All of it is shown."
    assert "<p" not in str(to_html("a" * 300_000)).partition("<pre")[2]
