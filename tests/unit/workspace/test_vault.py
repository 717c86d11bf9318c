"""The cipher: a sealed value decrypts only unchanged, under its own key, for its own name and tenant."""

import os
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.errors import Conflict
from nova_workers.base.master_keys import FixedKeys
from nova_workers.domain.secrets.rules.vault import Sealed, Vault

OLD, NEW = os.urandom(32), os.urandom(32)
PLACE = ("ten_1", "TOKEN")


def test_a_sealed_value_can_be_decrypted() -> None:
    vault = Vault([("new", NEW), ("old", OLD)])
    sealed = vault.seal(*PLACE, "the value, with ünïcode")
    assert sealed.key_id == "new"
    assert vault.open(*PLACE, sealed) == "the value, with ünïcode"
    assert b"value" not in sealed.ciphertext


def test_equal_values_have_different_ciphertexts() -> None:
    vault = Vault([("new", NEW)])
    assert vault.seal(*PLACE, "value") != vault.seal(*PLACE, "value")


def test_an_old_key_decrypts_and_does_not_encrypt() -> None:
    sealed = Vault([("old", OLD)]).seal(*PLACE, "value")
    both = Vault([("new", NEW), ("old", OLD)])
    assert both.open(*PLACE, sealed) == "value"
    assert both.seal(*PLACE, "value").key_id == "new"
    with pytest.raises(Conflict, match="master key 'old', which this process does not have"):
        Vault([("new", NEW)]).open(*PLACE, sealed)


@pytest.mark.parametrize("place", [("ten_2", "TOKEN"), ("ten_1", "OTHER"), ("ten_1\0TOKEN", ""), ("", "ten_1\0TOKEN")])
def test_a_moved_ciphertext_does_not_decrypt(place: tuple[str, str]) -> None:
    vault = Vault([("new", NEW)])
    with pytest.raises(Conflict, match="cannot be opened"):
        vault.open(*place, vault.seal(*PLACE, "value"))


def test_another_key_with_the_same_id_does_not_decrypt() -> None:
    sealed = Vault([("k", OLD)]).seal(*PLACE, "value")
    with pytest.raises(Conflict, match="the key 'k' is not the one"):
        Vault([("k", NEW)]).open(*PLACE, sealed)


@given(st.data())
def test_no_bit_can_be_changed(data: st.DataObject) -> None:
    vault = Vault([("new", NEW)])
    sealed = vault.seal(*PLACE, "value")
    at = data.draw(st.integers(0, len(sealed.ciphertext) * 8 - 1))
    changed = bytearray(sealed.ciphertext)
    changed[at // 8] ^= 1 << at % 8
    with pytest.raises(Conflict):
        vault.open(*PLACE, Sealed("new", bytes(changed)))


@pytest.mark.parametrize("ciphertext", [b"", b"\x01", b"\x01" + b"0" * 12, b"value"])
def test_invalid_ciphertexts_do_not_decrypt(ciphertext: bytes) -> None:
    with pytest.raises(Conflict, match="cannot be opened"):
        Vault([("new", NEW)]).open(*PLACE, Sealed("new", ciphertext))


def test_without_a_key_nothing_is_encrypted() -> None:
    for use in (lambda: Vault([]).seal(*PLACE, "v"), lambda: Vault([]).open(*PLACE, Sealed("k", b""))):
        with pytest.raises(Conflict, match="NOVA_SECRETS__KEYS"):
            use()


def test_keys_come_as_the_settings_have_them() -> None:
    vault = Vault.of(FixedKeys([f"2026:{b64encode(NEW).decode()}", f"2025:{b64encode(OLD).decode()}"]))
    assert vault.open(*PLACE, Vault([("2025", OLD)]).seal(*PLACE, "value")) == "value"
    assert vault.current_key_id == "2026"
