"""What is known of the models behind a vendor's program: names, prices, windows."""

from collections.abc import Mapping

from nova_workers.base.errors import EngineFailure
from nova_workers.engines.models import ALIASES
from nova_workers.engines.prices import ModelPrice, PriceList
from nova_workers.engines.resilience import ModelLimits

_UNKNOWN_TOKENS = 200_000


class ProgramModels:
    """The models of one program.

    Attributes:
        prices: What they cost.
    """

    def __init__(
        self,
        engine: str,
        *,
        price_list: str,
        default: str | None = None,
        aliases: Mapping[str, str] | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
        windows: Mapping[str, int] | None = None,
        unknown_tokens: int = _UNKNOWN_TOKENS,
    ) -> None:
        """Take the operator's settings.

        Args:
            engine: The engine's name, for messages.
            price_list: The vendor's id in `genai-prices`.
            default: What the aliases ``haiku``, ``sonnet`` and ``opus`` mean if `aliases` does not say.
            aliases: Models by alias.
            prices: By model, ``*`` for all others.
            windows: Context windows, likewise.
            unknown_tokens: The window of an unknown model.
        """
        self._engine = engine
        self._aliases = {**(dict.fromkeys(ALIASES, default) if default else {}), **(aliases or {})}
        self.prices = PriceList(price_list, prices)
        self._windows = windows or {}
        self._unknown_tokens = unknown_tokens

    def id(self, name: str) -> str:
        """Return the model that `name` means: an alias, or the vendor's name of it.

        Raises:
            EngineFailure: It is an alias without a model here.
        """
        model = self._aliases.get(name, name)
        if model in ALIASES:
            raise EngineFailure(
                f"The model {name!r} means no model of the engine {self._engine!r}. Give the agent a model, or say "
                f"what the alias means with NOVA_{self._engine.upper()}__MODEL.",
                kind="model_error",
                retryable=False,
            )
        return model

    def context_tokens(self, model: str) -> int:
        """Return the context window of a model; the default for one that is unknown."""
        name = self._aliases.get(model, model)
        configured = self._windows.get(name) or self._windows.get("*")
        return configured or self.prices.context_tokens(name) or self._unknown_tokens

    def limits(self, model: str) -> ModelLimits:
        """Return the known limits of a model."""
        return ModelLimits(self.context_tokens(model))
