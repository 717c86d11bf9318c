import io
import random

import pytest
from rich.console import Console

from nova_workers.cli.terminal.markdown import SafeMarkdown
from nova_workers.cli.terminal.markdown_stream import MarkdownStream
from nova_workers.cli.terminal.thinking_text import ThinkingText

ANSWER = """# Tea

A paragraph with **bold words** that is longer than the forty cells of this terminal, so that it wraps twice or more.

| leaf | minutes |
| --- | --- |
| green | 2 |
| black tea from the hills | 4 |

```python
def steep(minutes):

    return minutes * 60
```

1. boil

   the water
2. pour

> a quote

The end."""


def _console() -> Console:
    return Console(file=io.StringIO(), width=40, no_color=True)


def _streamed(text: str, pieces: random.Random) -> str:
    stream, done, at = MarkdownStream(_console()), "", 0
    while at < len(text):
        size = pieces.randint(1, 30)
        done += stream.feed(text[at : at + size])
        at += size
    return done + stream.close()


def _words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("seed", range(20))
def test_an_answer_is_whole_for_any_split(seed: int) -> None:
    console = _console()
    with console.capture() as whole:
        console.print(SafeMarkdown(ANSWER))
    assert _words(_streamed(ANSWER, random.Random(seed))) == _words(whole.get())


def test_lines_are_final_before_a_long_paragraph_ends_and_no_word_is_cut() -> None:
    stream = MarkdownStream(_console())
    shown = "".join(stream.feed(f"word{at} ") for at in range(60))
    assert len(shown.splitlines()) >= 8
    rest = stream.close()
    assert [word for line in (shown + rest).splitlines() for word in line.split()] == [f"word{at}" for at in range(60)]


def test_a_fence_continues_as_code_after_a_note() -> None:
    stream = MarkdownStream(_console())
    stream.feed("```\nfirst *line*\n")
    assert "first *line*" in stream.close()
    stream.feed("second *line*\n```\n")
    assert "second *line*" in stream.close()


def test_thinking_wraps_between_words_behind_a_bar() -> None:
    thinking = ThinkingText(30)
    lines = [line for at in range(12) for line in thinking.feed(f"thought{at} ")] + thinking.close()
    assert all(line.startswith("│ ") and len(line) <= 30 for line in lines)
    assert " ".join(line.removeprefix("│ ") for line in lines).split() == [f"thought{at}" for at in range(12)]
