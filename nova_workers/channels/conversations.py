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

from nova_workers.base.errors import (
    ConfigurationError,
    Conflict,
    Gone,
    IdempotencyMismatch,
    IllegalTransition,
    InvalidInput,
    NotFound,
)
from nova_workers.base.validation import place_of, problem_of
from nova_workers.base.vocabulary import Rating
from nova_workers.channels.answers import Question, answer_to
from nova_workers.channels.port import Update
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.feedback import FeedbackGive
from nova_workers.contracts.http.wire import RunCreate, RunView, ThreadCreate, ThreadPatch, ThreadView
from nova_workers.contracts.waits import ANSWERABLE, WaitView

_ANSWERS = "channel_answers"
"""Key of the thread's metadata: run, wait and kind that an update answers, by the update's id."""
_MODEL = "channel_model"
"""Key of the thread's metadata: the model that a person chose for its messages."""
_KEPT_ANSWERS = 20
_RECENT_RUNS = 50
"""How many of a conversation's runs are searched for an update that comes again while its thread waits for a person."""
_MAX_LABEL_CHARS = 200
_MAX_TO_CHARS = 256

M = TypeVar("M", bound=BaseModel)


class Submitted(NamedTuple):
    """What became of an update.

    Attributes:
        run_id: The run of its message; None if it answered a question.
        chosen: The question with the option that it chose, if that was the answer.
    """

    run_id: str | None = None
    chosen: Question | None = None


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

    @property
    def agent_id(self) -> str:
        """The agent of new conversations."""
        return self._agent_id

    async def submit(self, update: Update) -> Submitted:
        """Submit an update once, however often it comes.

        Raises:
            Rejected: The API refuses it, such as an attachment that is no image.
            ConfigurationError: There is no such agent for a new conversation.
            Unavailable: The API does not answer; submit it again.
        """
        if update.wait_id is not None and update.run_id is not None:
            if update.choice is not None:
                return Submitted(chosen=await self._choose(update, update.run_id))
            # The run may be one of another conversation.
            asking = await self._client.runs.get(update.run_id)
            thread = await self._client.threads.get(asking.thread_id)
        else:
            thread = await self.find(update.conversation) or await self._create(update.conversation)
        if await self._answer(thread, update):
            return Submitted()
        metadata = {
            "channel": self._channel,
            "to": update.conversation[:_MAX_TO_CHARS],
            "event_id": update.id,
            "sender": update.sender,
        }
        model = thread.metadata.get(_MODEL)
        message = _body(RunCreate, {"message": update.content(), "model": model, "metadata": metadata})
        key = f"channel:{self._channel}:{_digest(update.id)}"
        try:
            return Submitted((await self._client.runs.create(message, thread_id=thread.id, idempotency_key=key)).id)
        except IdempotencyMismatch:
            # The same update had another content before, such as another transcript of a recording, or another model.
            submitted = await self._submitted(thread, update)
            if submitted is None:
                raise
            return Submitted(submitted.id)

    async def rate(self, update: Update, run_id: str, rating: Rating) -> None:
        """Give what a person says of an answer as the feedback of an end user; it replaces the person's earlier one.

        Raises:
            Rejected: The API refuses it, such as for a run that was deleted.
        """
        score = 1.0 if rating == "up" else -1.0
        await self._client.feedback.give(run_id, FeedbackGive(score=score, source="user", author=self._by(update)))

    async def open_waits(self, run_id: str) -> list[WaitView]:
        """Return the questions of a run to a person, oldest first."""
        run = await self._client.runs.get(run_id)
        return [wait for wait in run.waits if wait.request.kind in ANSWERABLE]

    async def find(self, conversation: str) -> ThreadView | None:
        """Return the thread of a conversation; None before its first message."""
        return await self._labelled(self._label(conversation))

    async def writing(self, conversation: str) -> list[ThreadView]:
        """Return the threads whose runs write in a conversation: its own, and the one that `begin` replaced last."""
        label = self._label(conversation)
        found = [await self._labelled(label), await self._labelled(_former(label))]
        return [thread for thread in found if thread is not None]

    async def choose_model(self, conversation: str, model: str | None) -> None:
        """Let the messages to come use a model; None is the agent's own.

        Raises:
            InvalidInput: It cannot be a model's name.
        """
        thread = await self.find(conversation) or await self._create(conversation)
        _body(RunCreate, {"message": "-", "model": model})
        others = {key: value for key, value in thread.metadata.items() if key != _MODEL}
        chosen = {} if model is None else {_MODEL: model}
        await self._client.threads.patch(thread.id, ThreadPatch(metadata=others | chosen))

    async def begin(self, conversation: str, agent_id: str | None = None) -> str:
        """Give a conversation a new thread, and return its agent. A thread without a message is new enough.

        With the same agent it keeps the chosen model too.

        A repetition after a crash ends in the same state: the former thread keeps a label until the next new one, so
        that its agent is known.

        Args:
            agent_id: Its agent from now on; None keeps the one that it has.

        Raises:
            ConfigurationError: There is no such agent.
        """
        label = self._label(conversation)
        former_label = _former(label)
        thread, former = await self._labelled(label), await self._labelled(former_label)
        last = thread or former
        wanted = agent_id or (self._agent_id if last is None else last.agent_id)
        if thread is not None and thread.agent_id == wanted:
            runs = await self._client.threads.runs(thread.id, limit=1)
            if not runs.items and (agent_id is None or chosen_model(thread) is None):
                return wanted
        # First, so that nothing has changed if there is no such agent.
        model = chosen_model(last) if last is not None and last.agent_id == wanted and agent_id is None else None
        new = await self._new_thread(conversation, wanted, model=model)
        if thread is not None:
            if former is not None:
                await self._client.threads.patch(former.id, ThreadPatch(label=None))
            await self._client.threads.patch(thread.id, ThreadPatch(label=former_label))
        await self._client.threads.patch(new.id, ThreadPatch(label=label))
        return wanted

    async def _labelled(self, label: str) -> ThreadView | None:
        found = (await self._client.threads.list(label=label, limit=1)).items
        return found[0] if found else None

    def _label(self, conversation: str) -> str:
        label = f"{self._channel}:{conversation}"
        if len(label) > _MAX_LABEL_CHARS or not label.isprintable():
            label = f"{self._channel}:sha256:{_digest(conversation)}"
        return label

    async def _create(self, conversation: str) -> ThreadView:
        """Return the thread of a conversation by its label, which is unique; created here or by another process."""
        label = self._label(conversation)
        try:
            return await self._new_thread(conversation, self._agent_id, label)
        except Conflict:
            # Another process created it meanwhile.
            found = await self._labelled(label)
            if found is None:
                raise
            return found

    async def _new_thread(
        self, conversation: str, agent_id: str, label: str | None = None, *, model: str | None = None
    ) -> ThreadView:
        metadata = {"channel": self._channel, "to": conversation[:_MAX_TO_CHARS]}
        if model is not None:
            metadata[_MODEL] = model
        try:
            thread = _body(ThreadCreate, {"agent_id": agent_id, "label": label, "metadata": metadata})
            return await self._client.threads.create(thread)
        except (NotFound, Gone, InvalidInput) as error:
            raise ConfigurationError(
                f"The agent {agent_id!r} is not there: {error.message} /agents shows those that are."
            ) from error

    async def _choose(self, update: Update, run_id: str) -> Question | None:
        """Give an option as the answer to the wait that the update names, unless that is answered already.

        Returns:
            The question with the option, if that became the answer.
        """
        waits = [wait for wait in await self.open_waits(run_id) if wait.id == update.wait_id]
        if waits:
            question = Question.of(waits[0], update)
            answer = answer_to(question, update, by=self._by(update))
            try:
                await self._client.runs.answer(run_id, answer)
            except IllegalTransition:
                return None
            return question
        return None

    async def _answer(self, thread: ThreadView, update: Update) -> bool:
        """Give an update as the answer to what its thread's run asks; return False if the update is a message."""
        answers: dict[str, list[str]] = thread.metadata.get(_ANSWERS, {})
        repeated = update.id in answers
        if repeated:
            question = Question(*answers[update.id])
        else:
            open_question = await self._open_question(thread, update)
            if open_question is None:
                return False
            question = open_question
        answer = answer_to(question, update, by=self._by(update))
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

    async def _open_question(self, thread: ThreadView, update: Update) -> Question | None:
        waits: list[WaitView] = []
        if thread.waiting_for is not None and thread.active_run_id is not None:
            waits = await self.open_waits(thread.active_run_id)
        if update.wait_id is not None:
            waits = [wait for wait in waits if wait.id == update.wait_id]
            if not waits:
                raise IllegalTransition(
                    f"The question {update.wait_id!r} is no longer open in this conversation. Send a message instead."
                )
        elif waits and await self._submitted(thread, update) is not None:
            # It is the message of a recent run, so that it is no answer to a later question.
            return None
        return None if not waits else Question.of(waits[0], update)

    async def _submitted(self, thread: ThreadView, update: Update) -> RunView | None:
        """Return the recent run whose message the update is."""
        recent = await self._client.threads.runs(thread.id, limit=_RECENT_RUNS)
        return next((run for run in recent.items if run.metadata.get("event_id") == update.id), None)

    def _by(self, update: Update) -> str:
        return f"{self._channel}: {update.sender}"[:200]


def _body(model: type[M], values: Mapping[str, Any]) -> M:
    """Return a request body. What is wrong with an update is refused here as the API would refuse it."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInput(f"{place_of(first) or 'update'}: {problem_of(first, model)}") from error


def chosen_model(thread: ThreadView) -> str | None:
    """Return the model that a person chose for the messages of a thread."""
    return thread.metadata.get(_MODEL)


def _former(label: str) -> str:
    """Return the label of the thread that a conversation had before."""
    return f"previous:{_digest(label)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
