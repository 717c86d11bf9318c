"""Which effects a run has, and what does them, by the settings."""

from nova_workers.config import EffectSettings
from nova_workers.contracts.engine import Engine
from nova_workers.effects.embeddings import EmbeddingEffect
from nova_workers.effects.handler import EffectHandler
from nova_workers.effects.http import HttpEmbeddings
from nova_workers.effects.local import LocalEmbeddings
from nova_workers.effects.provider import EmbeddingProvider
from nova_workers.effects.title import TitleEffect
from nova_workers.errors import ConfigurationError
from nova_workers.ledger.database import Database
from nova_workers.observability.metrics import Metrics

__all__ = ["effect_handlers", "effect_kinds", "embedding_provider", "remote_embeddings"]

_SERVER_CALLS = 4
"""Requests at the same time to an embedding server: enough to hide its latency, few enough to stay polite."""


def effect_kinds(settings: EffectSettings) -> tuple[str, ...]:
    """Return the effects that follow a run, in the order of the chain: nobody waits for a model to hear of its end."""
    return ("delivery", "embeddings", "title") if settings.enabled else ()


def embedding_provider(settings: EffectSettings) -> EmbeddingProvider | None:
    """Return the provider that the settings name, None for ``off``.

    Raises:
        ConfigurationError: ``openai`` without a base URL.
    """
    if settings.embedding_provider == "off":
        return None
    if settings.embedding_provider == "local":
        return LocalEmbeddings()
    if settings.embedding_base_url is None:
        raise ConfigurationError(
            "NOVA_EFFECTS__EMBEDDING_PROVIDER is 'openai', but NOVA_EFFECTS__EMBEDDING_BASE_URL is not set. Set it to "
            "the server that has /v1/embeddings, and NOVA_EFFECTS__EMBEDDING_MODEL to one of its models."
        )
    key = settings.embedding_api_key
    return HttpEmbeddings(
        base_url=settings.embedding_base_url,
        model=settings.embedding_model,
        api_key=None if key is None else key.get_secret_value(),
    )


def remote_embeddings(settings: EffectSettings) -> EmbeddingProvider | None:
    """Return the provider where it is a server, None where it is not: for processes that must stay small.

    The local model is a child of 172 MB; one for each API process would cost more than the processes themselves.

    Raises:
        ConfigurationError: ``openai`` without a base URL.
    """
    return embedding_provider(settings) if settings.embedding_provider == "openai" else None


def effect_handlers(
    database: Database,
    settings: EffectSettings,
    *,
    provider: EmbeddingProvider | None,
    engine: Engine,
    metrics: Metrics,
) -> dict[str, EffectHandler]:
    """Return what does each kind of effect. Nothing is started or connected.

    Args:
        database: Of the ledger.
        settings: Batch size.
        provider: Makes vectors; closed by the effect.
        engine: Asks the model for titles.
        metrics: Counts what titles cost.
    """
    embeddings = EmbeddingEffect(
        database,
        provider,
        batch_size=settings.embedding_batch,
        at_once=_SERVER_CALLS if settings.embedding_provider == "openai" else 1,
    )
    return {
        "embeddings": embeddings,
        "title": TitleEffect(database, engine, metrics=metrics),
    }
