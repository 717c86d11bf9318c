"""Kombu's transport: an unavailable broker must not end a worker."""

from __future__ import annotations

import pickle

import pytest
from kombu.exceptions import ContentDisallowed
from kombu.serialization import loads

from nova_workers.broker.celery_app import build_celery
from tests.requirements import proves


def test_a_message_is_not_acknowledged_on_a_lost_connection(redis_url: str) -> None:
    """What a worker does with the doorbell that it had just taken when the broker went away."""
    channel = build_celery(redis_url, fail_fast=True).connection().channel()
    channel.close()
    channel.connection = None
    channel.basic_ack("a tag of a queue without acknowledgement")


@proves("security.doorbells")
def test_a_message_that_is_not_json_is_refused_unread() -> None:
    accepted = build_celery("redis://127.0.0.1:1/0", fail_fast=True).conf.accept_content
    with pytest.raises(ContentDisallowed):
        loads(pickle.dumps({}), "application/x-python-serialize", "binary", accept=accepted)
