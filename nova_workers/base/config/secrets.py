"""Settings of secrets at rest: the master keys, or who holds them."""

import binascii
import re
from base64 import b64decode
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from nova_workers.base.config.forms import Seconds, empty_is_unset
from nova_workers.base.config.sections import Section
from nova_workers.base.master_keys import FixedKeys, HeldKeys, MasterKeySource, read_command, read_file

_MASTER_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}:\S+")
_MASTER_KEY_BYTES = 32


def check_master_keys(texts: Sequence[str]) -> None:
    """Refuse keys of a wrong form, by their position: the error must not print one.

    Raises:
        ValueError: One is wrong.
    """
    ids: set[str] = set()
    for at, text in enumerate(texts, 1):
        if _MASTER_KEY.fullmatch(text) is None:
            raise ValueError(f"key {at} does not have the form id:base64")
        key_id, _, encoded = text.partition(":")
        try:
            decoded = b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(f"key {at} ({key_id!r}) is not Base64 after the colon") from error
        if len(decoded) != _MASTER_KEY_BYTES:
            raise ValueError(f"key {at} ({key_id!r}) has {len(decoded)} bytes; it needs {_MASTER_KEY_BYTES}")
        if key_id in ids:
            raise ValueError(f"two keys are called {key_id!r}")
        ids.add(key_id)


def _checked_keys(keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    check_master_keys([key.get_secret_value() for key in keys])
    return keys


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("give an absolute path: processes of the fleet have different working directories")
    return path


class SecretSettings(Section):
    """Secrets at rest. Master keys are given by one of `keys`, `keys_command` and `keys_file`."""

    keys: Annotated[tuple[SecretStr, ...], AfterValidator(_checked_keys)] = ()
    """Master keys, each ``id:base64`` of 32 random bytes. The first encrypts, all decrypt. Without any the fleet
    stores no secrets, rather than in the clear."""
    keys_command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """A program and its arguments, which prints the keys, one a line: no shell is involved."""
    keys_file: Annotated[Annotated[Path, AfterValidator(_absolute)] | None, BeforeValidator(empty_is_unset)] = None
    """A file with the keys, one a line."""
    keys_every_s: Seconds = 60.0
    """How often the program or the file is read again, and so how long a new key may be unknown to a process. A KMS
    counts each read: 1,440 a day for each process."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [name for name in ("keys", "keys_command", "keys_file") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are given; master keys come from one of them")
        return self

    @property
    def are_given(self) -> bool:
        """Whether the fleet is given master keys, and makes none itself."""
        return bool(self.keys or self.keys_command or self.keys_file)

    @property
    def variable(self) -> str:
        """The setting that gives the keys."""
        if self.keys_command:
            return "NOVA_SECRETS__KEYS_COMMAND"
        return "NOVA_SECRETS__KEYS" if self.keys_file is None else "NOVA_SECRETS__KEYS_FILE"

    @property
    def source(self) -> MasterKeySource:
        """Where the keys come from. All parts of a process share what a program or a file holds."""
        return self._held or FixedKeys([key.get_secret_value() for key in self.keys])

    @cached_property
    def _held(self) -> HeldKeys | None:
        if self.keys_command:
            read = partial(read_command, self.keys_command)
        elif self.keys_file is not None:
            read = partial(read_file, self.keys_file)
        else:
            return None
        return HeldKeys(read, check_master_keys, every_s=self.keys_every_s)
