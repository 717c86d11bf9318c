"""The effects of the fleet, each declared once: its kind, the runs it applies to and its handler."""

from collections.abc import Awaitable, Callable, Iterator

from nova_workers.base.config import EffectSettings, Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.engine import Engine
from nova_workers.contracts.tool_programs import ToolPrograms
from nova_workers.domain.capabilities.rules.user_listings import effect_module, read_listing
from nova_workers.domain.delivery.rules.channels import ChannelRoutes
from nova_workers.domain.delivery.rules.routing import RunEndEffect
from nova_workers.domain.effects.rules.embeddings import EmbeddingEffect
from nova_workers.domain.effects.rules.handler import Effect
from nova_workers.domain.effects.rules.packages import PackageEffect
from nova_workers.domain.effects.rules.provider import EmbeddingProvider
from nova_workers.domain.effects.rules.title import TitleEffect
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work

_EACH = "*"
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


def package_effects(
    database: Database, settings: Settings, metrics: Metrics, programs: Callable[[], Awaitable[ToolPrograms]]
) -> Iterator[Effect]:
    """Yield the effects of packages that are switched on. Blocks: for the import of modules that are not known yet.

    Args:
        database: Of runs and secrets.
        settings: Which are on, and for which runs.
        metrics: Shows their failures from 0.
        programs: Returns what calls their functions. Closed elsewhere.

    Raises:
        ConfigurationError: One is not installed, or its module cannot be used; the message has file and line.
    """
    secrets = Secrets(database, Vault.of(settings.secrets.source))
    for kind, chosen in sorted(settings.effects.packages.items()):
        package, _, function = kind.partition(":")
        installed = effect_module(package)
        listing = read_listing(installed.source, installed.digest, settings.home / "tools")
        if listing.problem is not None:
            raise ConfigurationError(f"The effect {kind!r} of NOVA_EFFECTS__PACKAGES cannot be used. {listing.problem}")
        known = {effect.name: effect for effect in listing.effects}
        if function not in known:
            raise ConfigurationError(
                f"NOVA_EFFECTS__PACKAGES names {kind!r}, but {installed.source.target} has no effect {function!r}; it "
                f"has: {', '.join(sorted(known)) or 'none'}."
            )
        handler = PackageEffect(
            database,
            installed.source,
            known[function],
            secrets=secrets,
            secret_names=chosen.secrets,
            programs=programs,
        )
        # Prometheus does not see the increase of a series that begins at 1.
        metrics.effects.labels(kind, "failed")
        yield Effect(kind, "ended", handler, tenants=_only(chosen.tenants), agents=_only(chosen.agents), is_last=True)


def _only(names: frozenset[str]) -> frozenset[str] | None:
    return None if _EACH in names else names
