"""What people ask of a channel itself: a new conversation, another agent or model, the end of what runs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from nova_workers.base.errors import ConfigurationError, Forbidden, Gone, InvalidInput, NotFound
from nova_workers.channels.conversations import Conversations, chosen_model
from nova_workers.channels.port import Command, Reply, Update
from nova_workers.channels.replies import HELP, choice, notice
from nova_workers.client.client import NovaClient
from nova_workers.contracts.default_agents import RESERVED_AGENTS
from nova_workers.contracts.http.wire import BulkCancel, RunView, ThreadView

_MAX_AGENTS = 50
_MAX_MODELS = 20
_COUNTED_RUNS = 200
"""How many of a conversation's newest runs its usage is the sum of."""
_OWN_MODEL = "default"
"""The argument of a command that lets the agent have its own model again."""


class Commands:
    """Obeys the commands of one channel. Each may be repeated after a crash, before the next update is accepted."""

    def __init__(
        self, client: NovaClient, conversations: Conversations, only_agent: str | None, hidden: frozenset[str]
    ) -> None:
        """Obey commands.

        Args:
            client: Of the tenant. The lists of agents and models need the scope `agents`.
            conversations: The threads of the channel.
            only_agent: The agent of all conversations; None lets people choose.
            hidden: Agents that are not offered, such as those that have a channel of their own.
        """
        self._client = client
        self._conversations = conversations
        self._only_agent = only_agent
        self._hidden = hidden | RESERVED_AGENTS

    async def obey(self, update: Update, command: Command) -> Reply:
        """Do what an update commands, and return the answer."""
        match command:
            case "agent":
                return await self._choose(update)
            case "agents":
                return await self._list(update)
            case "model":
                return await self._model(update)
            case _:
                return notice(update.origin(), await self._answer(update, command))

    async def _answer(self, update: Update, command: Literal["new", "reset", "status", "usage", "stop", "help"]) -> str:
        conversation = update.conversation
        match command:
            case "new":
                name = await self._name(await self._conversations.begin(conversation))
                return f"A new conversation with {name} begins with your next message."
            case "reset":
                await self._stop(conversation)
                name = await self._name(await self._conversations.begin(conversation, self._conversations.agent_id))
                return f"You begin again with {name}."
            case "status":
                return await self._status(conversation)
            case "usage":
                return await self._usage(conversation)
            case "stop":
                return "Stopping." if await self._stop(conversation) else "Nothing runs in this conversation."
            case "help":
                unknown = update.text.strip()
                return f"There is no command /{unknown[:40]}.\n\n{HELP}" if unknown else HELP

    async def _list(self, update: Update) -> Reply:
        if self._only_agent is not None:
            return await self._only(update)
        try:
            agents = (await self._client.agents.list(limit=_MAX_AGENTS)).items
        except Forbidden:
            return notice(update.origin(), "The key of this channel may not list agents: it lacks the scope agents.")
        offered = [agent for agent in agents if agent.id not in self._hidden]
        named = [agent.spec.name for agent in offered]
        # Two agents of one name differ in their ids.
        labels = {
            agent.id: agent.spec.name if named.count(agent.spec.name) == 1 else f"{agent.spec.name} ({agent.id})"
            for agent in offered
        }
        words = "With whom do you want to talk? It begins a new conversation."
        return choice(update.origin(), words, "agent", labels)

    async def _choose(self, update: Update) -> Reply:
        origin, agent_id = update.origin(), update.text.strip()
        if self._only_agent not in {None, agent_id}:
            return await self._only(update)
        try:
            await self._conversations.begin(update.conversation, agent_id)
        except ConfigurationError:
            return notice(origin, f"There is no agent {agent_id[:80]!r}. /agents shows them.")
        return notice(origin, f"You talk with {await self._name(agent_id)} now.")

    async def _only(self, update: Update) -> Reply:
        return notice(update.origin(), f"You talk with {await self._name(self._only_agent or '')} here.")

    async def _stop(self, conversation: str) -> int:
        """Cancel what runs and waits, and return the number of runs."""
        stopped = 0
        for thread in await self._conversations.writing(conversation):
            done = await self._client.runs.cancel_many(BulkCancel(thread_id=thread.id))
            stopped += done.canceled + done.requested
        return stopped

    async def _model(self, update: Update) -> Reply:
        origin, wanted = update.origin(), update.text.strip()
        if not wanted:
            thread = await self._conversations.find(update.conversation)
            current = None if thread is None else chosen_model(thread)
            words = f"Your messages use the model {current}." if current else "Your messages use the agent's own model."
            advice = f"/model NAME changes it, /model {_OWN_MODEL} gives the agent its own model again."
            return choice(origin, f"{words}\n{advice}", "model", await self._models())
        model = None if wanted == _OWN_MODEL else wanted
        try:
            await self._conversations.choose_model(update.conversation, model)
        except InvalidInput:
            return notice(origin, f"{wanted[:80]!r} cannot be the name of a model.")
        words = "the agent's own model" if model is None else f"the model {model}"
        return notice(origin, f"Your next messages use {words}.")

    async def _models(self) -> Mapping[str, str]:
        """Return the models to offer, with what people read; none if the key may not see them."""
        try:
            models = (await self._client.orchestration_models.list()).items
        except Forbidden:
            return {}
        usable = [model.model_id for model in models if model.enabled and model.unavailable is None]
        return {_OWN_MODEL: "The agent's own"} | {model: model for model in usable[:_MAX_MODELS]} if usable else {}

    async def _status(self, conversation: str) -> str:
        thread = await self._conversations.find(conversation)
        agent_id = self._conversations.agent_id if thread is None else thread.agent_id
        lines = [f"You talk with {await self._name(agent_id)}."]
        if thread is not None:
            if (model := chosen_model(thread)) is not None:
                lines.append(f"Your messages use the model {model}.")
            lines.extend(await self._activity(thread))
        if len(lines) == 1 or thread is None or thread.active_run_id is None:
            lines.append("Nothing runs at the moment.")
        return "\n".join(lines)

    async def _activity(self, thread: ThreadView) -> list[str]:
        """Return lines about the active run of a thread, and about those behind it."""
        if thread.active_run_id is None:
            return []
        run = await self._client.runs.get(thread.active_run_id)
        open_runs = (await self._client.threads.runs(thread.id, limit=_COUNTED_RUNS)).items
        behind = sum(other.status == "queued" and other.id != run.id for other in open_runs)
        lines = [_state(run)]
        if behind:
            lines.append(f"Behind it: {_counted(behind, 'message')}.")
        return lines

    async def _usage(self, conversation: str) -> str:
        thread = await self._conversations.find(conversation)
        runs = [] if thread is None else (await self._client.threads.runs(thread.id, limit=_COUNTED_RUNS)).items
        used = [run.usage for run in runs if run.usage is not None]
        tokens_in, tokens_out = sum(usage.input_tokens for usage in used), sum(usage.output_tokens for usage in used)
        costs = [usage.cost_usd for usage in used if usage.cost_usd is not None]
        which = f"The newest {_COUNTED_RUNS} messages" if len(runs) == _COUNTED_RUNS else _counted(len(runs), "message")
        words = f"This conversation: {which}, {tokens_in:,} tokens read and {tokens_out:,} written"
        price = f", {sum(costs):.4f} USD." if costs else "."
        unpriced = len(used) - len(costs)
        return words + price + (f" The price of {_counted(unpriced, 'answer')} is not known." if unpriced else "")

    async def _name(self, agent_id: str) -> str:
        """Return an agent's name; its id if the key may not see it."""
        try:
            return (await self._client.agents.get(agent_id)).spec.name
        except (Forbidden, NotFound, Gone):
            return agent_id


def _state(run: RunView) -> str:
    match run.status:
        case "running":
            since = "" if run.started_at is None else f" for {_duration(run.started_at)}"
            return f"It works on an answer{since}."
        case "waiting" | "queued":
            return f"A message waits: {run.waiting_for or 'it is next'}."
        case _:
            return "The answer is ready."


def _duration(since: datetime) -> str:
    seconds = max(0, round((datetime.now(UTC) - since).total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
