"""Master keys in the environment: one form, and an error about one does not print it."""

import json
import os
from base64 import b64encode

import pytest

from nova_workers.base.config import load_settings
from nova_workers.base.config.secret_variables import secret_values
from nova_workers.base.errors import ConfigurationError

GOOD = b64encode(os.urandom(32)).decode()


def test_keys_are_read_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"2027:{GOOD}", f"a.b_c-1:{b64encode(bytes(32)).decode()}"]
    monkeypatch.setenv("NOVA_SECRETS__KEYS", json.dumps(keys))
    settings = load_settings()
    assert settings.secrets.texts() == tuple(keys)
    assert GOOD not in repr(settings)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ([GOOD], "key 1 does not have the form id:base64"),
        ([f"2027:{GOOD}", f":{GOOD}"], "key 2 does not have the form id:base64"),
        ([f"has space:{GOOD}"], "key 1 does not have the form"),
        ([f"{'x' * 33}:{GOOD}"], "key 1 does not have the form"),
        ([f"2027:{GOOD[:-3]}*=="], "is not Base64"),
        ([f"2027:{b64encode(os.urandom(16)).decode()}"], "has 16 bytes; it needs 32"),
        ([f"2027:{GOOD}", f"2027:{GOOD}"], "two keys are called '2027'"),
    ],
)
def test_a_key_of_another_form_stops_the_process_and_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, keys: list[str], says: str
) -> None:
    monkeypatch.setenv("NOVA_SECRETS__KEYS", json.dumps(keys))
    with pytest.raises(ConfigurationError, match="NOVA_SECRETS__KEYS") as refused:
        load_settings()
    assert says in refused.value.message
    assert not any(key.rpartition(":")[2] in refused.value.message for key in keys)


def test_the_values_of_secret_settings_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    like_a_url = f"main:{b64encode(bytes([255] * 32)).decode()}"
    monkeypatch.setenv("NOVA_SECRETS__KEYS", json.dumps([f"2027:{GOOD}", like_a_url]))
    monkeypatch.setenv("NOVA_DATABASE_URL", "postgresql://nova:a-long-password-1@db/nova")
    monkeypatch.setenv("NOVA_REDIS_URL", "redis://cache:6379/0")
    monkeypatch.setenv(
        "NOVA_OPENAI__PROVIDERS", json.dumps({"local": {"base_url": "http://x/v1", "api_key": "local-key-12345"}})
    )
    values = secret_values(load_settings())
    assert values["NOVA_DATABASE_URL"] == "a-long-password-1"
    assert values["NOVA_SECRETS__KEYS__0"] == f"2027:{GOOD}"
    assert values["NOVA_SECRETS__KEYS__1"] == like_a_url
    assert "local-key-12345" in values.values()
    assert "NOVA_REDIS_URL" not in values
