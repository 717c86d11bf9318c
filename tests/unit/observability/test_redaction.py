"""No secret reaches a log line."""

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.observability.redaction import REDACTED, redact, redact_secrets
from tests.support.data import planted_leaks as planted
from tests.support.data.harmless_answers import harmless_answers

KEY = "nova_" + "aB3" + "x" * 40


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"key {KEY} was used", f"key nova_aB3x{REDACTED} was used"),
        ("sk-ant-api03-abcdefghijklmnop_QRS", f"sk-ant-api0{REDACTED}"),
        ("Authorization: Bearer abc.def.ghi", f"Authorization: Bearer {REDACTED}"),
        ("basic dXNlcjpwdw==", f"basic {REDACTED}"),
        ("postgresql://nova:p@ss@db/nova", f"postgresql://nova:{REDACTED}@db/nova"),
        ("postgresql://nova:hunter2@db:5432/nova", f"postgresql://nova:{REDACTED}@db:5432/nova"),
        ("redis://:hunter2@cache:6379/0", f"redis://:{REDACTED}@cache:6379/0"),
        ("dsn password=hunter2 host=db", f"dsn password={REDACTED} host=db"),
        ('{"api_key": "hunter2"}', f'{{"api_key": "{REDACTED}"}}'),
    ],
)
def test_a_secret_in_a_text_is_replaced(text: str, kept: str) -> None:
    assert redact(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "nova_workers.domain.effects.rules.runner",
        "nova_workers_effects_embedding_provider",
        "run_01JD3X5V0Q6Q8ZK3N5T9R2M4WB",
        "http://127.0.0.1:8700/v1/runs?a=b@c",
        "redis://cache:6379/0",
        "input_tokens=12",
    ],
)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert redact(text) == text


_PIECES = (
    *(
        "nova_",
        "sk-",
        "sk-ant-",
        "aB3",
        "x" * 16,
        "Bearer",
        "basic",
        "password",
        "api_key",
        "X-Api-Key",
        "redis",
        "host",
    ),
    *("://", ":", "=", "@", "/", "'", '"', " ", "\t", "\n", "\u2003", "\xa0"),
)


@given(st.lists(st.sampled_from(_PIECES), max_size=8).map("".join))
def test_no_secret_is_in_a_text_that_is_not_searched(text: str) -> None:
    # A blank makes a text one that is searched, and at its end it is part of no secret.
    assert redact(text) == redact(f"{text} ")[:-1]


@pytest.mark.parametrize("disguise", ["as it is", "base64", "hexadecimal", "reversed", "zero width"])
def test_no_credential_of_any_vendor_is_in_a_log_line(disguise: str) -> None:
    for kind, secret in planted.CREDENTIALS.items():
        hidden = planted.DISGUISES[disguise](secret)
        line = redact_secrets(
            None, "info", {"event": "refused", "error": f"It said {hidden}, and left", "list": [hidden]}
        )
        # Of an address its path is not logged at all.
        gone = "/…" if "://" in secret else REDACTED
        for logged in (line["error"], line["list"][0]):
            assert secret not in logged, kind
            assert REDACTED in logged or gone in logged, kind


def test_lines_about_harmless_things_stay_as_they_are() -> None:
    answers = list(harmless_answers(300, seed=5))
    # A log line loses nothing if a word after `password:` is left out.
    assert sum(redact(text) != text for text in answers) < 60


def test_every_key_that_the_api_makes_is_recognised() -> None:
    for _ in range(500):
        key = f"nova_{secrets.token_urlsafe(32)}"
        assert key[10:] not in redact(f"used {key} now")


def test_fields_that_name_a_secret_are_replaced_at_any_depth() -> None:
    line = {
        "event": "http_request",
        "headers": {"Authorization": "whatever", "X-Api-Key": "whatever", "Accept": "json"},
        "settings": [{"model": {"api_key": "whatever"}}, {"openai_api_key": "whatever"}],
        "input_tokens": 5,
        "error": ValueError("redis://:hunter2@cache"),
    }
    assert redact_secrets(None, "info", line) == {
        "event": "http_request",
        "headers": {"Authorization": REDACTED, "X-Api-Key": REDACTED, "Accept": "json"},
        "settings": [{"model": {"api_key": REDACTED}}, {"openai_api_key": REDACTED}],
        "input_tokens": 5,
        "error": "redis://cache",
    }


def test_a_self_referential_value_is_handled() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert redact_secrets(None, "info", {"loop": loop})["loop"]
