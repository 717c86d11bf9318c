"""Makes replies from what the fleet says."""

from collections.abc import Mapping

from nova_workers.base.vocabulary import Rating
from nova_workers.channels.answers import Question
from nova_workers.channels.port import Command, Origin, Reply, ReplyType
from nova_workers.channels.wording import failure_words
from nova_workers.contracts.events import StreamEnd, StreamError
from nova_workers.contracts.waits import AskApproval, AskUser, WaitView

HELP = (
    "Write a message, and the agent answers. A reply to an earlier message quotes it.\n\n"
    "/new: begin a new conversation\n"
    "/agents: choose an agent\n"
    "/model: show or change the model\n"
    "/status: what happens now\n"
    "/usage: tokens and cost of this conversation\n"
    "/stop: end what runs\n"
    "/reset: end what runs, and begin again with the first agent and model"
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


def notice(origin: Origin, text: str) -> Reply:
    """Return the answer to a command."""
    return text_reply("notice", origin, text)


def choice(origin: Origin, text: str, command: Command, labels: Mapping[str, str]) -> Reply:
    """Return the answer to a command that offers arguments of a following one, each with what people read."""
    offered = {"command": command, "options": tuple(labels), "labels": tuple(labels.values())}
    return notice(origin, text).model_copy(update=offered)


def chosen_reply(origin: Origin, question: Question) -> Reply:
    """Return the option that an update chose."""
    named = {"id": f"{question.wait_id}:chosen", "wait_id": question.wait_id}
    return text_reply("chosen", origin, question.option, question.run_id).model_copy(update=named)


def rated_reply(origin: Origin, run_id: str, rating: Rating) -> Reply:
    """Return that an update rated the answer of a run."""
    return text_reply("rated", origin, "").model_copy(update={"run_id": run_id, "rating": rating})


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


def end_reply(origin: Origin, run_id: str, end: StreamEnd, problem: StreamError | None) -> Reply | None:
    """Return the last reply for a run; None if the answer is in another run, which its message joined.

    Args:
        origin: Where it goes.
        run_id: The run that a failure names.
        end: The last event of its stream.
        problem: The error that it failed of, if there is one.
    """
    match end.status:
        case "succeeded":
            return text_reply("answer", origin, end.text or "", run_id)
        case "merged":
            return None
        case _:
            if end.status == "canceled":
                return text_reply("failure", origin, "This answer was canceled.", run_id)
            kind, detail = (None, None) if problem is None else (problem.kind, problem.error)
            failure = text_reply("failure", origin, failure_words(kind, run_id), run_id)
            return failure.model_copy(update={"detail": detail})
