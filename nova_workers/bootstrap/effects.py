"""The effects of the fleet, each declared once: its kind, the runs it applies to and its handler."""

from nova_workers.base.config import EffectSettings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.engine import Engine
from nova_workers.domain.delivery.rules.channels import ChannelRoutes
from nova_workers.domain.delivery.rules.routing import RunEndEffect
from nova_workers.domain.effects.rules.embeddings import EmbeddingEffect
from nova_workers.domain.effects.rules.handler import Effect
from nova_workers.domain.effects.rules.provider import EmbeddingProvider
from nova_workers.domain.effects.rules.title import TitleEffect
from nova_workers.ledger.work import Work

_SERVER_CALLS = 4
"""Concurrent requests to an embedding server: enough to hide its latency without loading it."""


def declare_effects(
    work: Work,
    settings: EffectSettings,
    *,
    provider: EmbeddingProvider | None,
    engine: Engine,
    metrics: Metrics,
    routes: ChannelRoutes,
) -> tuple[Effect, ...]:
    """Return the effects of a run in the order of its chain. Nothing is started or connected.

    Deliveries come first, so that a webhook does not wait for a model.

    Args:
        work: Rings for the deliveries of ended runs.
        settings: Batch size and provider of embeddings.
        provider: Computes vectors; closed by its effect.
        engine: Asks the model for titles.
        metrics: Counts what titles cost.
        routes: Which agents deliver to webhooks.
    """
    embeddings = EmbeddingEffect(
        work.database,
        provider,
        batch_size=settings.embedding_batch,
        at_once=_SERVER_CALLS if settings.embedding_provider == "openai" else 1,
    )
    return (
        Effect("delivery", "has_listener", RunEndEffect(work, routes)),
        Effect("embeddings", "searchable", embeddings, prepares_all=True),
        Effect("title", "untitled", TitleEffect(work.database, engine, metrics=metrics)),
    )
