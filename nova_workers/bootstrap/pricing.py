"""Prices of models, from the settings."""

from nova_workers.base.config.models import ModelPriceSetting
from nova_workers.engines.prices import ModelPrice


def model_price(price: ModelPriceSetting) -> ModelPrice:
    """Return the price of a model; what the operator leaves out follows from the price of input."""
    cache_read = price.input / 10 if price.cache_read is None else price.cache_read
    cache_write = price.input * 1.25 if price.cache_write is None else price.cache_write
    return ModelPrice(price.input, price.output, cache_read, cache_write, price.web_search)
