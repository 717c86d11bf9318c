"""Which models a role calls, in which order. Pure."""

from collections.abc import Sequence

from nova_workers.base.vocabulary import PresentationMode
from nova_workers.contracts.orders import AiWorkOrderV1, ModelChoice, PolicyDocument, PolicyRole, ProviderHints


def models_of(order: AiWorkOrderV1, policy: PolicyDocument, role: PolicyRole) -> list[ModelChoice]:
    """Return the models of a role in the order in which they are tried.

    Empty if none has the capabilities that the policy requires, or hints permit none. The policy's preferred provider
    comes first; then the role's own order applies. Hints of the order come before both if the policy allows that.
    """
    models = _first(policy.eligible(role), [policy.preferred_provider] if policy.preferred_provider else [])
    hints = _hints(order) if policy.hints_override else ProviderHints()
    preferred = hints.preferred or []
    if preferred and hints.allow_fallback is False:
        models = [model for model in models if model.provider in preferred]
    return _first(models, preferred)


def presentation_of(order: AiWorkOrderV1, policy: PolicyDocument) -> PresentationMode:
    """Return how the result of an order shows its proposals: as it asks, if the policy has that mode."""
    wanted = order.extensions and order.extensions.presentation_mode
    return wanted if wanted in policy.presentation.modes else policy.presentation.default


def _hints(order: AiWorkOrderV1) -> ProviderHints:
    found = order.extensions and order.extensions.provider_hints
    return found or ProviderHints()


def _first(models: Sequence[ModelChoice], providers: Sequence[str]) -> list[ModelChoice]:
    rank = {provider: at for at, provider in reversed(list(enumerate(providers)))}
    return sorted(models, key=lambda model: rank.get(model.provider, len(rank)))
