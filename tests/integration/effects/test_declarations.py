"""Each effect is declared once, with its condition and its handler."""

from typing import get_args

from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.vocabulary import EffectKind
from nova_workers.bootstrap.delivery import build_routes
from nova_workers.bootstrap.effects import declare_effects
from nova_workers.domain.delivery.rules.routing import RunEndEffect
from nova_workers.domain.effects.rules.embeddings import EmbeddingEffect
from nova_workers.domain.effects.rules.title import TitleEffect
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.effects.test_title_effect import FixedAnswer


def test_every_kind_of_effect_is_declared_once_and_deliveries_come_first(
    database: Database, settings: Settings, metrics: Metrics
) -> None:
    effects = declare_effects(
        Work(database),
        settings.effects,
        provider=None,
        engine=FixedAnswer("A title."),
        metrics=metrics,
        routes=build_routes(database, settings),
    )
    assert tuple(effect.kind for effect in effects) == get_args(EffectKind)
    assert [(effect.applies, type(effect.handler)) for effect in effects] == [
        ("has_listener", RunEndEffect),
        ("searchable", EmbeddingEffect),
        ("untitled", TitleEffect),
    ]
