"""How values are shown: one form each for times, durations, tokens, money and sizes. The filters of the templates."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from nova_workers.base.clock import Clock, spell_duration
from nova_workers.console.schema_forms.shapes import label_of
from nova_workers.contracts.content import ContentBlock, text_of
from nova_workers.contracts.http.overview.audit_words import describe_action
from nova_workers.contracts.http.wire import RunView, UsageView
from nova_workers.contracts.waits import describe_waits

NOTHING: Final = Markup('<span class="muted nothing">-</span>')
"""Stands for a value that is missing. Where a row of a table is a card, its cell is left out."""

_STEPS = ((60, "s", 1), (3_600, "min", 60), (86_400, "h", 3_600), (30 * 86_400, "d", 86_400))
_RUN = re.compile(r"\brun (run_[0-9A-Z]{26})\b")
_ORDER_PART = re.compile(r"^Work order trc_\w{26}, part wop_\w{26}\.?$")
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:]{8}(?:\+00:00|Z)")
_MOST_MS = 999.5
_KIB = 1024

_TONES: Mapping[str, str] = {
    **dict.fromkeys(
        ("succeeded", "active", "ok", "done", "completed", "complete", "delivered", "sent", "open"), "good"
    ),
    **dict.fromkeys(("running", "working", "executing", "in_progress"), "live"),
    **dict.fromkeys(("waiting", "paused", "draining", "blocked", "awaiting_approval", "pending", "deferred"), "warn"),
    **dict.fromkeys(("waiting_for_child", "waiting_for_parent", "waiting_for_expert"), "warn"),
    **dict.fromkeys(("failed", "error", "timed_out", "expired", "dead", "refused", "rejected", "killed"), "bad"),
}
"""The colour of a status word; all others are neutral. The word itself is always shown beside it."""


_SPOKEN: Mapping[str, str] = {
    "deferred": "waiting",
    "api": "API",
    "waiting_for_child": "waits for an agent",
    "waiting_for_parent": "waits for its master",
    "waiting_for_expert": "waits for an expert",
}
"""Codes whose own letters are no words for the person who reads them."""


def filters(clock: Clock) -> dict[str, Callable[..., object]]:
    """Return the filters by their names in templates."""

    def time(value: datetime | str | None) -> Markup:
        """Show it relative, with the absolute time on hover. The browser keeps it current."""
        return NOTHING if value is None else _time(_moment(value), clock.now())

    def due(value: datetime | None) -> Markup:
        """Show a time at which something is to happen: it is now, and never ago, if that is late."""
        return NOTHING if value is None else _time(value, min(value, clock.now()), " data-due")

    def took(begin: datetime | None, end: datetime | None) -> str | Markup:
        """Show how long something took, or takes until now. The browser keeps it current."""
        if begin is None:
            return NOTHING
        if end is not None:
            return duration((end - begin).total_seconds())
        so_far = duration(max(0.0, (clock.now() - begin).total_seconds()))
        return Markup('<span data-since="{}">{}</span>').format(begin.isoformat(timespec="milliseconds"), so_far)

    def reason(text: str) -> Markup:
        """Show why a run waits: with a link in place of another run's id, and with its start as a time."""
        shown = Markup(_RUN.sub(r'<a href="/runs/\1">another run</a>', str(escape(text))))  # noqa: S704 - escaped before
        return Markup(_MOMENT.sub(lambda found: str(due(_moment(found[0]))), str(shown)))  # noqa: S704 - likewise

    return {
        "time": time,
        "reason": reason,
        "due": due,
        "clock": _clock,
        "duration": duration,
        "took": took,
        "tokens": tokens,
        "usd": usd,
        "cost": cost,
        "bytes": size,
        "tone": _tone,
        "words": _words,
        "action_words": describe_action,
        "label": label_of,
        "awaited": _awaited,
        "host": _host,
        "brief": brief,
        "excerpt": _excerpt,
        "message_text": _message_text,
        "json": _json,
        "count": _count,
        "plural": _plural,
    }


def duration(seconds: float | None) -> str | Markup:
    """Return a duration with two units at most, as `spell_duration` does; below a second in milliseconds."""
    if seconds is None:
        return NOTHING
    return f"{max(seconds, 0) * 1000:.0f} ms" if seconds < _MOST_MS / 1000 else spell_duration(seconds)


def tokens(count: int | None) -> str | Markup:
    """Return a number of tokens in three digits: ``940``, ``12.3k``, ``4.56M``."""
    if count is None:
        return NOTHING
    if count < 1_000:
        return str(count)
    for scale, letter in ((1_000, "k"), (1_000_000, "M"), (1_000_000_000, "G")):
        if count < 999.5 * scale:
            return f"{count / scale:.3g}{letter}"
    return f"{count / 1e9:,.0f}G"


def usd(amount: float | None) -> str | Markup:
    """Return US dollars: cents from one cent on, else four digits. None is an unknown price."""
    if amount is None:
        return Markup('<span class="muted" title="The price of the model is unknown.">?</span>')
    if amount == 0:
        return "$0"
    return f"${amount:,.2f}" if amount >= 0.1 else f"${amount:.4f}"


def cost(usage: UsageView | None) -> str | Markup:
    """Return the cost of a usage. Before the first answer of a model that is nothing, and not an unknown price."""
    if usage is None or (usage.cost_usd is None and not usage.input_tokens and not usage.output_tokens):
        return NOTHING
    return usd(usage.cost_usd)


def size(count: int | None) -> str | Markup:
    """Return a size: ``812 B``, ``14.2 KiB``, ``3.0 MiB``."""
    if count is None:
        return NOTHING
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < _KIB or unit == "TiB":
            break
        amount /= _KIB
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def brief(text: str | None, chars: int = 120) -> str:
    """Return the begin of a text on one line; of a work order's part, what it is in place of its ids."""
    line = _ORDER_PART.sub("A part of a work order", " ".join((text or "").split()))
    return line if len(line) <= chars else f"{line[: chars - 1].rstrip()}…"


def _excerpt(content: Sequence[ContentBlock]) -> str:
    """Return the begin of a message on one line: its text, else what its first block is."""
    text = text_of(tuple(content))
    if text.strip() or not content:
        return brief(text)
    block = content[0]
    if block.get("type") == "tool_use":
        return brief(f"calls {block.get('name')}")
    if block.get("type") == "tool_result":
        inner = block.get("content")
        return brief(f"result: {inner if isinstance(inner, str) else text_of(tuple(inner or ()))}")
    return str(block.get("type"))


def _time(value: datetime, now: datetime, mark: str = "") -> Markup:
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(
        at.isoformat(timespec="milliseconds"),
        at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        Markup(mark),  # noqa: S704 - of this module
        _relative((now - at).total_seconds()),
    )


def _relative(age_s: float) -> str:
    past, away = age_s >= 0, abs(age_s)
    if away < 5:
        return "now"
    for limit, unit, scale in _STEPS:
        if away < limit:
            return f"{int(away // scale)} {unit} ago" if past else f"in {int(away // scale)} {unit}"
    months = int(away // (30 * 86_400))
    words = f"{months} mo" if months < 12 else f"{int(away // (365 * 86_400))} y"
    return f"{words} ago" if past else f"in {words}"


def _moment(value: datetime | str) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _clock(value: datetime | str) -> str:
    """Return the date and the time of day at the place that the value's offset is of."""
    return f"{_moment(value):%a %Y-%m-%d %H:%M}"


def _tone(word: object) -> str:
    return _TONES.get(str(word), "idle")


def _words(word: object) -> str:
    return _SPOKEN.get(str(word), str(word).replace("_", " "))


def _awaited(kind: str) -> str:
    return describe_waits([kind])


def _host(address: str) -> str:
    return urlsplit(address).hostname or address


def _message_text(run: RunView) -> str:
    return text_of(tuple(run.message))


def _count(number: float) -> str:
    return f"{number:,}"


def _plural(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
