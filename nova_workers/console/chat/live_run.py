"""What the events of a run add to the ledger: the response that is being streamed, and what happens right now.

It follows the rules for clients in docs/http-api.md: a `stream_start` of another attempt and a `restart` make the text
since the last `step` void. What is committed comes from the ledger, so `LiveRun` forgets it.
"""

from dataclasses import dataclass, field

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
    Usage,
    Waiting,
)


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A tool call, as its events describe it."""

    id: str
    tool_name: str
    status: str
    summary: str | None = None


@dataclass(slots=True)
class LiveRun:
    """The state of one run's stream.

    Attributes:
        step: The step that is being streamed: the number of responses before it.
        text: Of the response so far.
        thinking: Of the response so far.
        calls: Since the last step, by id.
        doing: What happens now.
        usage: Of the turn so far.
        ended: Whether the run has ended; the ledger has everything.
    """

    run_id: str
    step: int = 0
    text: str = ""
    thinking: str = ""
    calls: dict[str, LiveCall] = field(default_factory=dict[str, LiveCall])
    doing: str = ""
    usage: Usage | None = None
    ended: bool = False

    def feed(self, event: Event) -> bool:
        """Take one event; return whether the ledger has news that the page does not show yet."""
        match event:
            case Token(agent=str(agent)) | Reasoning(agent=str(agent)) | AssistantMessage(agent=str(agent)):
                # A subagent's own text; its result arrives as a tool result.
                self.doing = f"{agent} works"
            case Token(text=text):
                self.text += text
                self.doing = ""
            case AssistantMessage(text=text, step=step):
                # The whole text of the step, also where its tokens came in part. The ledger has that of a closed step.
                self.text = text if step is None or step >= self.step else ""
            case Reasoning(text=text):
                self.thinking += text
                self.doing = ""
            case Thinking():
                self.doing = "Waiting for the model"
            case Restart(agent=None):
                self._void()
            case Usage():
                self.usage = event
            case ToolStatus():
                return self._on_call(event)
            case _:
                return self._on_run(event)
        return False

    def _on_call(self, event: ToolStatus) -> bool:
        known = self.calls.get(event.tool_call_id)
        summary = event.summary or (known.summary if known else None)
        self.calls[event.tool_call_id] = LiveCall(event.tool_call_id, event.tool_name, event.status, summary)
        self.doing = "" if event.status in ("started", "running") else "Waiting for the model"
        return event.status != "running"

    def _on_run(self, event: Event) -> bool:
        match event:
            case StreamStart(attempt=attempt):
                self._void()
                self.doing = "Another worker continues" if attempt > 1 else "Working"
            case Step(index=index):
                self.step = index + 1
                self._void()
                self.doing = "Waiting for the model"
            case Compaction(phase="start"):
                self.doing = "Summarising the older part of the conversation"
                return False
            case StreamEnd(final=True):
                self.ended = True
                self._void()
            case ToolServersAway(servers=servers):
                self.doing = f"Without {', '.join(server.name for server in servers)}, which does not answer"
            case ProviderUnavailable(summary=summary, advice=advice):
                self.doing = f"Waiting: {summary}. {advice}"
            case OptionLeftOut(note=note):
                self.doing = note
            case Waiting() | Steered() | ContentLeftOut() | Compaction() | StreamError() | StreamEnd():
                self.doing = ""
            case _:
                return False
        return True

    def _void(self) -> None:
        self.text = self.thinking = self.doing = ""
        self.calls.clear()
