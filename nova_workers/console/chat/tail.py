"""The end of a turn that is under way, as changes of the page: new text is appended, not rendered anew."""

from collections.abc import Callable, Collection
from typing import Protocol

from markupsafe import Markup, escape

from nova_workers.console.chat.growing_markdown import GrowingMarkdown, code_of
from nova_workers.console.chat.live_run import LiveRun
from nova_workers.console.live import Change
from nova_workers.console.markdown import to_html


class Renderer(Protocol):
    """Makes HTML of values with a macro of the chat's templates."""

    def __call__(self, macro: str, /, *values: object) -> Markup:
        """Return the markup that the macro makes of the values."""
        ...


class Tail:
    """What a browser shows of one run's live end. The ids are those of the macro ``tail``.

    The first changes replace whatever the browser shows from an earlier connection.
    """

    def __init__(self, run_id: str, render: Renderer) -> None:
        self.run_id = run_id
        self.fresh = True
        self._render = render
        self._markdown = GrowingMarkdown()
        self._thinking = ""
        self._shown: dict[str, str] = {}

    def changes(self, live: LiveRun, *, responses: int, known_calls: Collection[str]) -> list[Change]:
        """Return the changes.

        Args:
            live: The run's stream.
            responses: How many of the turn's responses the page shows from the ledger: with that of the live step, the
                live text would be there twice.
            known_calls: Calls that the page shows from the ledger.
        """
        shown = responses <= live.step
        calls = [call for call in live.calls.values() if call.id not in known_calls]
        changes = self._think(live.thinking if shown else "")
        changes += self._write(live.text if shown else "")
        changes += self._replace("calls", lambda: self._render("live_calls", self.run_id, calls), str(calls))
        changes += self._replace(
            "doing", lambda: self._render("doing", self.run_id, live.doing, live.usage), f"{live.doing}{live.usage}"
        )
        self.fresh = False
        return changes

    def _think(self, thinking: str) -> list[Change]:
        before, self._thinking = self._thinking, thinking
        if thinking == before and not self.fresh:
            return []
        if before and not self.fresh and thinking.startswith(before):
            return [Change("append", f"{self.run_id}-thoughts", str(escape(thinking[len(before) :])))]
        return [Change("replace", f"{self.run_id}-thinking", self._render("thinking_now", self.run_id, thinking))]

    def _write(self, text: str) -> list[Change]:
        closed, last = f"{self.run_id}-closed", f"{self.run_id}-open"
        growth = self._markdown.grow(text)
        if growth is None:
            return [Change("inner", closed), Change("inner", last)] if self.fresh else []
        changes: list[Change] = []
        html = "".join(to_html(block) for block in growth.closed)
        if growth.anew or self.fresh:
            changes.append(Change("inner", closed, html))
        elif html:
            changes.append(Change("append", closed, html))
        if growth.code:
            changes.append(Change("append", f"{self.run_id}-code", str(escape(growth.code))))
        if growth.open is not None:
            code = code_of(growth.open)
            html = to_html(growth.open) if code is None else self._render("open_code", self.run_id, code)
            changes.append(Change("inner", last, html))
        return changes

    def _replace(self, name: str, render: Callable[[], Markup], state: str) -> list[Change]:
        if self._shown.get(name) == state:
            return []
        self._shown[name] = state
        return [Change("replace", f"{self.run_id}-{name}", render())]
