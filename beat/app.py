"""The Celery app of beat: ``celery -A beat.app beat``. Run one or several; duplicate ticks are safe."""

from celery import Celery, signals

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.observability.logging import configure_logging
from nova_workers.broker.celery_app import build_celery

from .schedule import beat_schedule


def create_app(settings: Settings) -> Celery:
    """Return the Celery app whose beat sends the ticks. It keeps no file: due work is recorded in Postgres."""
    celery = build_celery(settings.require_redis_url(), fail_fast=True, name="nova-beat")
    celery.conf.beat_schedule = beat_schedule(settings)
    celery.conf.beat_scheduler = f"{__package__}.scheduler:TickScheduler"

    @signals.setup_logging.connect(weak=False)
    def set_up_logging(**_: object) -> None:
        configure_logging(settings.telemetry, "beat")

    return celery


# The entry point for Celery's command line; nothing else imports this module.
app = create_app(load_settings())
