"""The engine on the `openai` SDK."""

from nova_workers.engines.openai.catalog import Catalog
from nova_workers.engines.openai.engine import OpenAIEngine
from nova_workers.engines.openai.provider import DEFAULT_PROVIDER, Key, OpenAIProvider

__all__ = ["DEFAULT_PROVIDER", "Catalog", "Key", "OpenAIEngine", "OpenAIProvider"]
