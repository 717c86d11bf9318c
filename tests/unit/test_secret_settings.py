"""Master keys of the environment, a program or a file: one form, and an error about one does not print it."""

import json
import os
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from nova_workers.base import master_keys
from nova_workers.base.config import SecretSettings, load_settings
from nova_workers.base.config.secret_variables import secret_values
from nova_workers.base.errors import ConfigurationError, Conflict
from nova_workers.domain.secrets.rules.vault import Vault
from tests.support.waiting import until

GOOD = b64encode(os.urandom(32)).decode()


def test_keys_are_read_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"2027:{GOOD}", f"a.b_c-1:{b64encode(bytes(32)).decode()}"]
    monkeypatch.setenv("NOVA_SECRETS__KEYS", json.dumps(keys))
    settings = load_settings()
    assert settings.secrets.source.texts() == tuple(keys)
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


def _program(tmp_path: Path, code: str) -> str:
    file = tmp_path / "held.py"
    file.write_text(code)
    return json.dumps([sys.executable, str(file)])


def test_a_program_holds_the_keys_and_gets_no_setting_of_the_fleet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = f"import os; assert not [n for n in os.environ if n.startswith('NOVA_')]; print('kms:{GOOD}')"
    monkeypatch.setenv("NOVA_SECRETS__KEYS_COMMAND", _program(tmp_path, code))
    settings = load_settings()
    assert settings.secrets.are_given
    assert settings.secrets.source is settings.secrets.source
    assert settings.secrets.source.texts() == (f"kms:{GOOD}",)
    assert GOOD not in repr(settings)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (f"print('kms:{GOOD}'); raise SystemExit(3)", "ended with 3"),
        (f"print('{GOOD}')", "key 1 does not have the form"),
        ("pass", "there is no key"),
        (f"print('kms:{GOOD}\\n' * 2)", "two keys are called 'kms'"),
        (f"print('kms:{GOOD}', 'x' * 100_000)", "more than 65,536 bytes"),
        ("import sys; sys.stdout.buffer.write(bytes([255]))", "are not text"),
        (f"import sys; sys.stderr.write('{GOOD}'); raise SystemExit(1)", "ended with 1"),
    ],
)
def test_what_a_program_prints_instead_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], code: str, says: str
) -> None:
    monkeypatch.setenv("NOVA_SECRETS__KEYS_COMMAND", _program(tmp_path, code))
    with pytest.raises(ConfigurationError) as refused:
        load_settings().secrets.source.texts()
    assert says in refused.value.message
    assert GOOD not in refused.value.message
    assert GOOD not in "".join(capfd.readouterr())


def test_a_program_that_does_not_end_or_start_is_refused_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(master_keys, "_TIMEOUT_S", 0.3)
    monkeypatch.setenv("NOVA_SECRETS__KEYS_COMMAND", _program(tmp_path, "import time; time.sleep(60)"))
    with pytest.raises(ConfigurationError, match="longer than"):
        load_settings().secrets.source.texts()
    monkeypatch.setenv("NOVA_SECRETS__KEYS_COMMAND", '["/nowhere/kms"]')
    with pytest.raises(ConfigurationError, match=r"'/nowhere/kms' does not start: No such file"):
        load_settings().secrets.source.texts()


def test_keys_come_from_one_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOVA_SECRETS__KEYS", json.dumps([f"2027:{GOOD}"]))
    monkeypatch.setenv("NOVA_SECRETS__KEYS_FILE", str(tmp_path / "keys"))
    with pytest.raises(ConfigurationError, match="keys and keys_file are given"):
        load_settings()


async def test_a_rotation_reads_the_file_again_and_other_processes_follow(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    old, new = f"old:{GOOD}", f"new:{b64encode(os.urandom(32)).decode()}"
    file.write_text(old)
    rotating = Vault.of(SecretSettings(keys_file=file, keys_every_s=3_600).source)
    other = Vault.of(SecretSettings(keys_file=file, keys_every_s=3_600).source)
    before = rotating.seal("ten", "NAME", "value")
    file.write_text(f"{new}\n{old}\n")
    assert rotating.current_key_id == "old"
    await rotating.refresh()
    after = rotating.seal("ten", "NAME", "value")
    assert (before.key_id, after.key_id) == ("old", "new")
    assert rotating.open("ten", "NAME", before) == "value"
    with pytest.raises(Conflict, match="'new'"):
        other.open("ten", "NAME", after)
    # It is read again for a key that is not known, long before its time.
    await until(lambda: other.current_key_id == "new")
    assert other.open("ten", "NAME", after) == "value"


async def test_keys_that_were_read_stay_while_the_file_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"old:{GOOD}")
    vault = Vault.of(SecretSettings(keys_file=file).source)
    file.write_text("damaged")
    with pytest.raises(Conflict, match="key 1 does not have the form"):
        await vault.refresh()
    file.unlink()
    with pytest.raises(Conflict, match="cannot be read: No such file"):
        await vault.refresh()
    assert vault.current_key_id == "old"


async def test_a_file_is_read_again_from_time_to_time(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"old:{GOOD}")
    vault = Vault.of(SecretSettings(keys_file=file, keys_every_s=0.05).source)
    assert vault.current_key_id == "old"
    file.write_text(f"new:{GOOD}")
    await until(lambda: vault.current_key_id == "new")
