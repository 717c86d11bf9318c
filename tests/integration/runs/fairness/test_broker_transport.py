"""Kombu's transport: an unavailable broker must not end a worker."""

from __future__ import annotations

from nova_workers.broker.celery_app import build_celery


def test_a_message_is_not_acknowledged_on_a_lost_connection(redis_url: str) -> None:
    """What a worker does with the doorbell that it had just taken when the broker went away."""
    channel = build_celery(redis_url, fail_fast=True).connection().channel()
    channel.close()
    channel.connection = None
    channel.basic_ack("a tag of a queue without acknowledgement")
