"""Past conversations, stored and indexed."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from nova_workers.contracts.ports import Embedder
from nova_workers.domain.effects.rules.embeddings import EmbeddingEffect
from nova_workers.domain.effects.rules.provider import EmbeddingProvider
from nova_workers.domain.effects.sql import DueEffect
from nova_workers.domain.search.rules import History
from nova_workers.domain.search.sql.messages import MessageFilter
from nova_workers.ledger.database import Database
from tests.integration.effects.ledger import SeededRun, seed_run, seed_thread

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


class PastConversations:
    """The past conversations of one database.

    Args:
        provider: Makes the vectors; None indexes words only.
    """

    def __init__(self, database: Database, provider: EmbeddingProvider | None = None) -> None:
        self.database = database
        self._provider = provider

    async def thread(
        self, tenant_id: str = "ten_1", agent_id: str = "nova", title: str | None = None
    ) -> tuple[str, str]:
        """Begin a thread."""
        return await seed_thread(self.database, tenant_id=tenant_id, agent_id=agent_id, title=title)

    async def say(
        self,
        question: str,
        answer: str = "Noted.",
        *,
        thread: tuple[str, str] | None = None,
        agent_id: str = "nova",
        tenant_id: str = "ten_1",
        days_ago: float = 0,
    ) -> SeededRun:
        """Store a run with a question and its answer, in a new thread unless one is given, and index it."""
        run = await seed_run(
            self.database,
            [("query", question), ("response", answer)],
            thread=thread or await self.thread(tenant_id, agent_id),
            effects=(),
            agent_id=agent_id,
        )
        await self.database.execute(
            "UPDATE messages SET created_at = :created_at WHERE turn_id = :turn_id",
            turn_id=run.turn_id,
            created_at=NOW - timedelta(days=days_ago),
        )
        due = DueEffect("eff_1", run.tenant_id, run.run_id, run.thread_id, "embeddings", 1)
        effect = EmbeddingEffect(self.database, self._provider, batch_size=32)
        await effect.prepare([due])
        await effect.handle([due])
        return run

    async def find(
        self, text: str, which: MessageFilter | None = None, *, embedder: Embedder | None = None, limit: int = 10
    ) -> Sequence[str]:
        """Search, and return the ids of the messages that were found, best first."""
        history = History(self.database, embedder)
        found = await history.search(which or MessageFilter("ten_1", "nova"), text, limit=limit)
        return [hit.message_id for hit in found.items]
