"""What people ask of a channel itself: a new conversation, another agent, the end of what runs."""

from nova_workers.base.errors import ConfigurationError, Forbidden
from nova_workers.channels.conversations import Conversations
from nova_workers.channels.port import Command, Reply, Update
from nova_workers.channels.replies import HELP, notice
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import BulkCancel

_MAX_AGENTS = 50


class Commands:
    """Obeys the commands of one channel. Each may be repeated after a crash, before the next update is accepted."""

    def __init__(self, client: NovaClient, conversations: Conversations, only_agent: str | None) -> None:
        """Obey commands.

        Args:
            client: Of the tenant. The list of agents needs the scope `agents`.
            conversations: The threads of the channel.
            only_agent: The agent of all conversations; None lets people choose.
        """
        self._client = client
        self._conversations = conversations
        self._only_agent = only_agent

    async def obey(self, update: Update, command: Command) -> Reply:
        """Do what an update commands, and return the answer."""
        origin = update.origin()
        match command:
            case "new":
                agent_id = await self._conversations.begin(update.conversation)
                return notice(origin, f"A new conversation with {agent_id} begins with your next message.")
            case "agent":
                return await self._choose(update)
            case "agents":
                return await self._list(update)
            case "stop":
                stopped = 0
                for thread in await self._conversations.writing(update.conversation):
                    done = await self._client.runs.cancel_many(BulkCancel(thread_id=thread.id))
                    stopped += done.canceled + done.requested
                return notice(origin, "Stopping." if stopped else "Nothing runs in this conversation.")
            case "help":
                return notice(origin, HELP)

    async def _list(self, update: Update) -> Reply:
        if self._only_agent is not None:
            return notice(update.origin(), f"You talk with {self._only_agent} here.")
        try:
            agents = (await self._client.agents.list(limit=_MAX_AGENTS)).items
        except Forbidden:
            return notice(update.origin(), "The key of this channel may not list agents: it lacks the scope agents.")
        lines = [f"{agent.spec.name} ({agent.id})" for agent in agents]
        words = "\n".join(["With whom do you want to talk? It begins a new conversation.", *lines])
        return notice(update.origin(), words, tuple(agent.id for agent in agents), "agent")

    async def _choose(self, update: Update) -> Reply:
        origin, agent_id = update.origin(), update.text.strip()
        if self._only_agent not in {None, agent_id}:
            return notice(origin, f"You talk with {self._only_agent} here.")
        try:
            await self._conversations.begin(update.conversation, agent_id)
        except ConfigurationError:
            return notice(origin, f"There is no agent {agent_id[:80]!r}. /agents shows them.")
        return notice(origin, f"You talk with {agent_id} now.")
