"""Providers and models of the engine `openai`. Its SDK is imported by name, and only where the engine is configured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from nova_workers.base.config import OpenAIProviderSetting, OpenAISettings, Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.bootstrap.pricing import model_price
from nova_workers.engines.models import ALIASES
from nova_workers.engines.prices import listed_provider

_DEFAULT = "openai"
_URL = "https://api.openai.com/v1"


def openai_catalog(settings: Settings) -> Any:
    """Return the providers and models (`nova_workers.engines.openai.Catalog`), or None where there is no such engine.

    Raises:
        ConfigurationError: There are providers, but no model.
    """
    own = settings.openai
    if own.model is None:
        if own.providers or own.aliases:
            raise ConfigurationError(
                "The engine 'openai' has settings, but NOVA_OPENAI__MODEL is not set. Set it to the model that the "
                "aliases haiku, sonnet and opus mean with this engine, such as 'openai/gpt-6.2-sol' or 'ollama/qwen3'."
            )
        return None
    module = import_module("nova_workers.engines.openai")
    return module.Catalog(
        _providers(own, module),
        # What the contract's aliases mean with Anthropic's models says nothing here.
        aliases={**dict.fromkeys(ALIASES, own.model), **_own_names(settings.model.aliases), **own.aliases},
        unknown_tokens=settings.model.context_window_tokens,
    )


def _own_names(aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the aliases that the operator named."""
    return {name: model for name, model in aliases.items() if name not in ALIASES}


def _providers(own: OpenAISettings, module: Any) -> list[Any]:
    given = {_DEFAULT: OpenAIProviderSetting(), **own.providers}
    return [_provider(name, provider, module) for name, provider in given.items()]


def _provider(name: str, given: OpenAIProviderSetting, module: Any) -> Any:
    base_url = given.base_url or (os.environ.get("OPENAI_BASE_URL") or _URL if name == _DEFAULT else None)
    if base_url is None:
        raise ConfigurationError(f"The provider {name!r} in NOVA_OPENAI__PROVIDERS has no base_url.")
    provider = module.OpenAIProvider(
        name=name,
        base_url=base_url,
        keys=tuple(module.Key(key, value) for key, value in _keys(name, given)),
        headers={header: value.get_secret_value() for header, value in given.headers.items()},
        models=given.models,
        prices={model: model_price(price) for model, price in given.prices.items()},
        price_list=listed_provider(base_url),
        context_windows=given.context_windows,
        images=given.images,
        documents=given.documents,
        parallel_tool_calls=given.parallel_tool_calls,
        structured_output=given.structured_output,
        max_tokens_field=given.max_tokens_field,
        reasoning_field=given.reasoning_field,
        return_reasoning=given.return_reasoning,
        extra_body=given.extra_body,
        thinking_body=given.thinking_body,
    )
    return provider.speaking(given.api or ("responses" if provider.is_openai else "chat"))


def _keys(name: str, given: OpenAIProviderSetting) -> list[tuple[str, str | None]]:
    if given.api_keys:
        return [(key, value.get_secret_value()) for key, value in given.api_keys.items()]
    own = None if given.api_key is None else given.api_key.get_secret_value()
    return [("default", own or (os.environ.get("OPENAI_API_KEY") if name == _DEFAULT else None))]
