"""Signatures of webhooks, against the example of the specification's own libraries."""

from datetime import UTC, datetime

from nova_workers.domain.webhooks.rules.standard_webhooks import new_secret, signed_headers
from tests.requirements import proves


@proves("webhooks.signed")
def test_a_signature_is_that_of_the_reference_libraries() -> None:
    headers = signed_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        datetime.fromtimestamp(1614265330, UTC),
        b'{"test": 2432232314}',
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",),
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_each_secret_signs_once() -> None:
    one, two = new_secret(), new_secret()
    assert one != two
    signatures = signed_headers("dlv_1", datetime.now(UTC), b"{}", (one, two))["webhook-signature"].split(" ")
    assert len(set(signatures)) == 2
    assert all(signature.startswith("v1,") for signature in signatures)
