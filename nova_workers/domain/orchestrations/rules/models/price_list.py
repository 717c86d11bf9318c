"""What `genai-prices` lists. Imported by name, with the first lookup: with its client of HTTP it takes 3 MB."""

from collections.abc import Iterator
from typing import NamedTuple

from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot


class ListedPrice(NamedTuple):
    """What a number of tokens costs in US dollars, and the model's context window if that is known."""

    usd: float
    context_window: int | None


def current_ids(library: str) -> Iterator[str]:
    """Yield the ids of a provider's models, by its name in the list, without those that are deprecated."""
    found = next((each for each in get_snapshot().providers if each.id == library), None)
    for model in () if found is None else found.models:
        if not model.deprecated:
            yield model.id


def price_of(model_id: str, library: str, *, input_tokens: int, output_tokens: int) -> ListedPrice:
    """Return the price of tokens.

    Raises:
        LookupError: The list does not have the model.
    """
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    price = calc_price(usage, model_id, provider_id=library)
    return ListedPrice(float(price.total_price), price.model.context_window)
