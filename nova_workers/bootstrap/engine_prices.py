"""Prices of models, from the settings."""

from __future__ import annotations

from nova_workers.base.config import Settings
from nova_workers.base.errors import EngineFailure
from nova_workers.bootstrap.openai import openai_catalog
from nova_workers.bootstrap.pricing import model_price
from nova_workers.contracts.usage import TokenPrice
from nova_workers.engines.models import resolve_model
from nova_workers.engines.prices import PriceList

_FREE = TokenPrice(0.0, 0.0)


class EnginePrices:
    """Implements `nova_workers.contracts.ports.ModelPrices` for all engines."""

    def __init__(self, settings: Settings) -> None:
        model = settings.model
        self._aliases = model.aliases
        overrides = {resolve_model(name, model.aliases): model_price(price) for name, price in model.prices.items()}
        self._default = PriceList("anthropic", overrides)
        self._openai = openai_catalog(settings)

    def per_token(self, engine: str, model: str) -> TokenPrice | None:
        """See `ModelPrices.per_token`. Scripts cost nothing."""
        match engine:
            case "scripted":
                return _FREE
            case "openai" if self._openai is not None:
                try:
                    target = self._openai.target(model)
                except EngineFailure:
                    return None
                return self._openai.prices(target).per_token(target.model)
            case _:
                return self._default.per_token(resolve_model(model, self._aliases))
