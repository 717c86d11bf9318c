"""Live view of a run, on a terminal or in a pipe.

The answer goes to stdout as it comes, rendered as Markdown on a terminal; tools, waits and costs are notes on stderr.
Written lines are never redrawn, so there is no flicker. Only one line is replaced, which shows the current activity:
on a terminal only, and wiped before anything else is written.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from nova_workers.base.vocabulary import Limit
from nova_workers.cli.talk.answers import wait_line
from nova_workers.cli.talk.shown_text import Piece, ShownText
from nova_workers.cli.terminal.output import Output, age, money, short
from nova_workers.cli.terminal.thinking_text import ThinkingText
from nova_workers.contracts.events import (
    AssistantMessage,
    Compaction,
    ContentLeftOut,
    Event,
    OptionLeftOut,
    ProviderUnavailable,
    Reasoning,
    Restart,
    Steered,
    Step,
    StreamEnd,
    StreamError,
    StreamStart,
    Thinking,
    Token,
    ToolServersAway,
    ToolStatus,
    ToolUseSummary,
    Usage,
    Waiting,
)

if TYPE_CHECKING:
    from nova_workers.cli.terminal.markdown_stream import MarkdownStream

_MARKDOWN_STREAM = "nova_workers.cli.terminal.markdown_stream"

_WIPE = "\r\x1b[2K"
_SUMMARY_CHARS = 100
_TAIL_CHARS = 60
"""Most characters of an open line that the transient line shows."""
_THOUGHT_STYLE = "dim italic"


class LiveView:
    """Shows the events of one run after another.

    Args:
        out: The output.
        reasoning: Whether to show extended thinking.
        answers_here: Whether a typed line answers the run's question.
        lasting: Whether a permission may hold for all agents of the run's orchestration from now on.
        resumed: Whether the first event may be inside a step.
    """

    def __init__(
        self,
        out: Output,
        *,
        reasoning: bool = False,
        answers_here: bool = False,
        lasting: bool = False,
        resumed: bool = False,
    ) -> None:
        self._out = out
        self._reasoning = reasoning
        self._answers_here = answers_here
        self._lasting = lasting
        self._shares_terminal = out.tty and out.stderr.isatty()
        self._thinks = False
        self._transient = False
        self._at_line_start = True
        self._wants_gap = False
        self._step_has_text = False
        self._has_text = False
        self._calls: dict[str, str | None] = {}
        self._told: str | None = None
        self._waited = False
        self._run_id = ""
        self._text = ShownText(resumed=resumed)
        self.usage: Usage | None = None
        self.asked: Waiting | None = None
        """The run's open question to a person."""

    @cached_property
    def _markdown(self) -> MarkdownStream | None:
        if not self._out.tty:
            return None
        # It imports Rich, while the request is sent already.
        made: MarkdownStream = import_module(_MARKDOWN_STREAM).MarkdownStream(self._out.console)
        return made

    @cached_property
    def _thoughts(self) -> ThinkingText:
        return ThinkingText(self._out.width or 80)

    def show(self, event: Event) -> None:
        """Show one event."""
        piece = self._text.take(event)
        match event:
            case Token(agent=str(agent)) | Reasoning(agent=str(agent)) | AssistantMessage(agent=str(agent)):
                # A subagent's own text; its result arrives as a tool result.
                self.doing(f"{agent} works")
            case Token():
                self._show_text(piece)
            case AssistantMessage():
                self._show_text(piece)
                self._close_step()
            case Restart(agent=None) if piece.replaces or self._thinks:
                self.note("↻ the answer broke off; the text since the last step comes again", "yellow")
                self._close_step()
            case Step():
                self._close_step()
            case ToolStatus() | ToolUseSummary():
                self._show_tool(event)
            case Thinking():
                self.doing("thinking")
            case Reasoning(text=text):
                self._show_reasoning(text)
            case Usage():
                self.usage = event
            case _:
                self._show_run(event)

    def doing(self, what: str) -> None:
        """Show the current activity until the next write. On a terminal only."""
        if not self._shares_terminal or not self._at_line_start:
            return
        self._out.stderr.write(f"{_WIPE}\x1b[2m… {short(what, 70)}\x1b[0m")
        self._out.stderr.flush()
        self._transient = True

    def note(self, text: str, style: str = "dim") -> None:
        """Write a line about the answer."""
        self._settle()
        self._out.note(text, style)

    def ask(self, event: Waiting) -> None:
        """Print what the run waits for and, for a question, how to answer."""
        self.note(wait_line(event, lasting=self._lasting), "yellow" if event.question else "dim")
        if not event.question:
            return
        self.asked = event
        approval = event.kind == "approval"
        if self._answers_here:
            always = ", always to permit it to all agents of the orchestration" if self._lasting else ""
            self.note(f"  type y to permit it, n to refuse it{always}" if approval else "  type the answer")
        else:
            answer = "--approve" if approval else shlex.quote(next(iter(event.options), "…"))
            self.note(f"  answer with `nova runs answer {self._run_id} {answer}`")

    def finish(self) -> None:
        """End the line of the answer, when it is open."""
        self._wipe()
        self._end_thoughts()
        if self._markdown is not None:
            self._put(self._markdown.close())
        if not self._at_line_start:
            self._put("\n")
            self._at_line_start = True

    def _show_missing(self, event: ToolServersAway | ContentLeftOut | OptionLeftOut) -> None:
        if not isinstance(event, ToolServersAway):
            self.note(f"⊘ {short(event.note.strip('[]'), 300)}", "yellow")
            return
        for server in event.servers:
            self.note(f"⊘ tool server {server.name} is away: {short(server.reason, 300)}", "yellow")

    def _show_run(self, event: Event) -> None:
        match event:
            case StreamStart(attempt=attempt, run_id=run_id):
                self._run_id = run_id
                self._begin_attempt(attempt)
            case Waiting():
                self._waited = True
                self.ask(event)
            case ProviderUnavailable():
                self._waited = self._waited or event.held
                self.note(outage_line(event), "yellow")
            case Steered(run_ids=run_ids):
                self.note(f"↪ {len(run_ids)} message{'s' if len(run_ids) > 1 else ''} joined this turn")
            case ToolServersAway() | ContentLeftOut() | OptionLeftOut():
                self._show_missing(event)
            case Compaction(phase="end", tokens_before=before, tokens_after=after) if before and after:
                self.note(f"⤓ older part summarised: {before:,} → {after:,} tokens")
            case Compaction():
                self.doing("summarising the older part")
            case StreamError(error=error, kind=kind):
                self.note(f"✗ {kind}: {short(error, 300)}", "red")
            case StreamEnd():
                self._show_end(event)
            case _:
                pass

    def _begin_attempt(self, attempt: int) -> None:
        if self._waited:
            self._waited, self.asked = False, None
        elif attempt > 1:
            self.note("↻ another worker continues")
        self._calls.clear()
        self.doing("running")

    def _show_tool(self, event: ToolStatus | ToolUseSummary) -> None:
        if isinstance(event, ToolUseSummary):
            # Repeats the result of the call, for clients that show no other tool events.
            if event.summary != self._told:
                self.note(f"  {short(event.summary, _SUMMARY_CHARS)}")
        elif event.status == "running":
            self.doing(event.summary or event.tool_name)
        elif event.status == "started":
            self._calls[event.tool_call_id] = event.summary
            self.finish()
            self.doing(event.summary or event.tool_name)
        else:
            self._told = event.summary
            style = "cyan" if event.status == "completed" else "red"
            self.note(tool_line(event, self._calls.pop(event.tool_call_id, None)), style)
        self._wants_gap = self._has_text

    def _show_reasoning(self, text: str) -> None:
        if not self._reasoning:
            self.doing("thinking")
            return
        if not self._thinks:
            self._settle()
            self._thinks = True
        self._wipe()
        for line in self._thoughts.feed(text):
            self._out.note(line, _THOUGHT_STYLE)
        self._wants_gap = True

    def _end_thoughts(self) -> None:
        if self._thinks:
            self._thinks = False
            for line in self._thoughts.close():
                self._out.note(line, _THOUGHT_STYLE)

    def _show_end(self, event: StreamEnd) -> None:
        if event.final:
            if not self._has_text and event.text:
                self._write(event.text)
            self.usage = event.usage or self.usage
            self.finish()
            if event.limit is not None:
                self._out.note(limit_line(event.limit), "yellow")
        else:
            self._wipe()

    def _show_text(self, piece: Piece) -> None:
        if piece.replaces:
            self.note("↻ the text since the last step is void; it comes again", "yellow")
            self._close_step()
        if piece.text:
            self._write(piece.text)
            self._step_has_text = True

    def _close_step(self) -> None:
        self._wants_gap = self._wants_gap or self._step_has_text
        self._step_has_text = False

    def _write(self, text: str) -> None:
        """Write a piece of the answer. A terminal gets it without control characters; a pipe gets it unchanged."""
        self._wipe()
        self._end_thoughts()
        if self._wants_gap:
            self.finish()
            text = text.lstrip("\n")
            self._wants_gap = not text
        if not text:
            return
        self._has_text = True
        if self._markdown is None:
            self._put(text)
            self._at_line_start = text.endswith("\n")
            return
        self._put(self._markdown.feed(text))
        if self._markdown.tail.strip():
            self.doing(self._markdown.tail[-_TAIL_CHARS:])

    def _settle(self) -> None:
        """Prepare for a note: erase the transient line; in a pipe keep an open line of the answer."""
        self._wipe()
        self._end_thoughts()
        if self._markdown is not None:
            self._put(self._markdown.close())
        if self._shares_terminal and not self._at_line_start:
            self._put("\n")
            self._at_line_start = True

    def _wipe(self) -> None:
        if self._transient:
            self._out.stderr.write(_WIPE)
            self._out.stderr.flush()
            self._transient = False

    def _put(self, text: str) -> None:
        if not text:
            return
        self._out.stdout.write(text)
        self._out.stdout.flush()


def tool_line(event: ToolStatus, asked: str | None) -> str:
    """Return an ended call in one line: the tool, its input and its outcome.

    Args:
        event: The end.
        asked: The summary of its start, if that was seen.
    """
    name = event.tool_name
    came = event.summary or event.status
    for prefix in (f"{name}: ", f"{name} failed: "):
        came = came.removeprefix(prefix)
    # A tool without a sentence of its own is described by its name alone.
    parts = [name, asked if asked and asked.replace(" ", "_").casefold() != name.casefold() else None, came]
    mark = "✓" if event.status == "completed" else "✗"
    return f"{mark} " + " · ".join(short(part, _SUMMARY_CHARS) for part in parts if part)


def limit_line(limit: Limit) -> str:
    """Return the text for a turn that ended at one of its limits."""
    return f"stopped at its limit of {limit}"


def outage_line(event: ProviderUnavailable) -> str:
    """Return one line about a model provider that cannot be used: which key or model, what to do, and the next try."""
    if event.next_try_at is None:
        again = "It goes on as soon as a worker with a key is free."
    else:
        wait_s = max((event.next_try_at - datetime.now(UTC)).total_seconds(), 0.0)
        again = f"Next try in {wait_s:.0f} s."
    return f"⏸ waiting: {event.summary}. {event.advice} {again} It says: {short(event.message, 200)}"


def cost_line(usage: Usage | None, *, seconds: float | None, run_id: str) -> str:
    """Return a run's duration, if known, and its cost, in one line."""
    parts = [] if seconds is None else [age(seconds)]
    if usage is not None:
        read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        parts += [f"{read:,} tokens in, {usage.output_tokens:,} out", money(usage.cost_usd)]
    return " · ".join([*parts, run_id])
