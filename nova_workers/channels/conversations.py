"""Submits updates of a channel: as messages to the thread of their conversation, or as answers to its waiting run.

Nothing is kept in the process, so any copy may take the next update, also after a crash. Each update has one effect:

- a message is submitted with an Idempotency-Key made of the channel and the update, which returns the first run again;
- an answer is recorded in the thread's metadata *before* it is given. If the same update comes again, it goes to the
  same question, where it is either given now or was given already, and never becomes a message.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from nova_workers.channels.port import Update
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import RunCreate, ThreadCreate, ThreadPatch, ThreadView
from nova_workers.contracts.waits import ANSWERABLE, RunAnswer, WaitView
from nova_workers.errors import ConfigurationError, Conflict, Gone, IllegalTransition, InvalidInput, NotFound
from nova_workers.validation import place_of, problem_of

__all__ = ["Conversations"]

_ANSWERS = "channel_answers"
"""Key of the thread's metadata: run, wait and kind that an update answers, by the update's id."""
_KEPT_ANSWERS = 20
_RECENT_RUNS = 50
"""How many of a conversation's runs are searched for an update that comes again while its thread waits for a person."""
_MAX_LABEL_CHARS = 200
_YES = frozenset({"yes", "y", "ok", "approve", "approved"})
_NO = frozenset({"no", "n", "deny", "denied"})

M = TypeVar("M", bound=BaseModel)


class Conversations:
    """The threads of one channel, one for each conversation."""

    def __init__(self, client: NovaClient, channel: str, agent_id: str) -> None:
        """Serve a channel.

        Args:
            client: Of the tenant.
            channel: Its name.
            agent_id: The agent of new conversations. A conversation keeps the agent with which it began.

        Raises:
            ConfigurationError: The name has a colon, so that two channels could have the same thread.
        """
        if ":" in channel:
            raise ConfigurationError(
                f"The channel's name {channel!r} has a colon, which ends the name in labels of threads. Take another."
            )
        self._client = client
        self._channel = channel
        self._agent_id = agent_id

    async def submit(self, update: Update) -> str | None:
        """Submit an update once, however often it comes.

        Returns:
            The run of its message; None if it answered a question.

        Raises:
            Rejected: The API refuses it, such as an attachment that is no image.
            ConfigurationError: There is no such agent for a new conversation.
            Unavailable: The API does not answer; submit it again.
        """
        thread = await self._thread(update.conversation)
        if await self._answer(thread, update):
            return None
        metadata = {
            "channel": self._channel,
            "to": update.conversation[:256],
            "event_id": update.id,
            "sender": update.sender,
        }
        message = _body(RunCreate, {"message": update.content(), "metadata": metadata})
        key = f"channel:{self._channel}:{_digest(update.id)}"
        return (await self._client.runs.create(message, thread_id=thread.id, idempotency_key=key)).id

    async def open_waits(self, run_id: str) -> list[WaitView]:
        """Return what a run asks a person, oldest first."""
        run = await self._client.runs.get(run_id)
        return [wait for wait in run.waits if wait.request.kind in ANSWERABLE]

    async def _thread(self, conversation: str) -> ThreadView:
        """Return the thread of a conversation, by its label, which is unique; created for the first update."""
        label = f"{self._channel}:{conversation}"
        if len(label) > _MAX_LABEL_CHARS or not label.isprintable():
            label = f"{self._channel}:sha256:{_digest(conversation)}"
        found = (await self._client.threads.list(label=label, limit=1)).items
        if found:
            return found[0]
        try:
            return await self._client.threads.create(ThreadCreate(agent_id=self._agent_id, label=label))
        except (NotFound, Gone) as error:
            raise ConfigurationError(
                f"The agent {self._agent_id!r} of channel {self._channel!r} is not there: {error.message}"
            ) from error
        except Conflict:
            # Another process created it meanwhile.
            found = (await self._client.threads.list(label=label, limit=1)).items
            if not found:
                raise
            return found[0]

    async def _answer(self, thread: ThreadView, update: Update) -> bool:
        """Give an update as the answer to what its thread's run asks; return False if the update is a message."""
        answers: dict[str, list[str]] = thread.metadata.get(_ANSWERS, {})
        repeated = update.id in answers
        if repeated:
            question = _Question(*answers[update.id])
        else:
            open_question = await self._open_question(thread, update)
            if open_question is None:
                return False
            question = open_question
        answer = _answer_to(question, update, by=f"{self._channel}: {update.sender}"[:200])
        if not repeated:
            newest = dict([*answers.items()][1 - _KEPT_ANSWERS :]) | {update.id: list(question)}
            change = _body(ThreadPatch, {"metadata": {**thread.metadata, _ANSWERS: newest}})
            await self._client.threads.patch(thread.id, change)
        try:
            await self._client.runs.answer(question.run_id, answer)
        except IllegalTransition:
            # If the update comes again, it is this answer that was given.
            if not repeated:
                raise
        return True

    async def _open_question(self, thread: ThreadView, update: Update) -> "_Question | None":
        waits: list[WaitView] = []
        if thread.waiting_for is not None and thread.active_run_id is not None:
            waits = await self.open_waits(thread.active_run_id)
        if update.wait_id is not None:
            waits = [wait for wait in waits if wait.id == update.wait_id]
            if not waits:
                raise IllegalTransition(
                    f"The question {update.wait_id!r} is no longer open in this conversation. Send a message instead."
                )
        elif waits and await self._was_submitted(thread, update):
            return None
        return None if not waits else _Question(waits[0].run_id, waits[0].id, waits[0].request.kind)

    async def _was_submitted(self, thread: ThreadView, update: Update) -> bool:
        """Return whether the update is the message of a recent run, so that it is no answer to a later question."""
        recent = await self._client.threads.runs(thread.id, limit=_RECENT_RUNS)
        return any(run.metadata.get("event_id") == update.id for run in recent.items)


class _Question(NamedTuple):
    run_id: str
    wait_id: str
    kind: str


def _answer_to(question: _Question, update: Update, *, by: str) -> RunAnswer:
    text = update.text.strip()
    if not text:
        raise InvalidInput("A question is answered with text, and the update has none.")
    if question.kind != "approval":
        return _body(RunAnswer, {"text": text, "wait_id": question.wait_id, "by": by})
    word = text.casefold().rstrip(".!")
    if word not in _YES | _NO:
        raise InvalidInput(f"A call that needs permission is answered with yes or no, not {text[:50]!r}.")
    return RunAnswer(approve=word in _YES, wait_id=question.wait_id, by=by)


def _body(model: type[M], values: Mapping[str, Any]) -> M:
    """Return a request body. What is wrong with an update is refused here as the API would refuse it."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInput(f"{place_of(first) or 'update'}: {problem_of(first, model)}") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
