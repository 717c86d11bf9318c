"""Makes replies from what the fleet says."""

from nova_workers.channels.port import Command, Origin, Reply, ReplyType
from nova_workers.contracts.events import StreamEnd
from nova_workers.contracts.waits import AskApproval, AskUser, WaitView

HELP = (
    "Write a message, and the agent answers. /new begins a new conversation, /agents shows the agents, "
    "/stop ends what runs."
)


def text_reply(kind: ReplyType, origin: Origin, text: str, run_id: str | None = None) -> Reply:
    """Return a reply of a run, or to an update."""
    return Reply(
        type=kind,
        id=run_id or origin.id,
        update_id=origin.id,
        conversation=origin.conversation,
        sender=origin.sender,
        text=text,
        run_id=run_id,
    )


def notice(origin: Origin, text: str, options: tuple[str, ...] = (), command: Command | None = None) -> Reply:
    """Return the answer to a command; the options are arguments of a following one."""
    return text_reply("notice", origin, text).model_copy(update={"options": options, "command": command})


def question_reply(origin: Origin, wait: WaitView) -> Reply:
    """Return the question of a run to a person."""
    request = wait.request
    kind: ReplyType = "question"
    text, options, only_options = "", (), False
    match request:
        case AskUser():
            text, options, only_options = request.question, request.options, request.only_options
        case AskApproval():
            kind, text = "approval", f"{request.reason}\n{request.tool_name} {request.params}"
        case _:
            pass
    named = {"id": wait.id, "wait_id": wait.id, "options": options, "only_options": only_options}
    return text_reply(kind, origin, text, wait.run_id).model_copy(update=named)


def closed_reply(asked: Reply) -> Reply:
    """Return that a question needs no answer any more."""
    return asked.model_copy(update={"type": "closed", "options": ()})


def end_reply(origin: Origin, run_id: str, end: StreamEnd, problem: str) -> Reply | None:
    """Return the last reply for a run; None if the answer is in another run, which its message joined."""
    match end.status:
        case "succeeded":
            return text_reply("answer", origin, end.text or "", run_id)
        case "merged":
            return None
        case _:
            return text_reply("failure", origin, problem or f"The run was {end.status}.", run_id)
