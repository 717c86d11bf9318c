"""What would make a start of the stack fail later is looked for before it: a start that is refused changes nothing."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing
from importlib.util import find_spec
from typing import Final

import asyncpg
from pydantic import SecretStr, ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.config import SecretSettings, Settings
from nova_workers.base.errors import ConfigurationError, in_one_line
from nova_workers.base.validation import problem_of
from nova_workers.devstack.first_start import MASTER_KEYS_FILE

_ANSWER_S: Final = 5


async def check_start(settings: Settings) -> None:
    """Check what `nova up` needs beside its ports: addresses of this machine, given servers, files, libraries.

    Raises:
        ConfigurationError: The start would fail; the message names the setting.
    """
    _check_host("NOVA_API__HOST", settings.api.host)
    if settings.console.enabled:
        _check_host("NOVA_CONSOLE__HOST", settings.console.host)
    _check_telegram(settings)
    _check_master_keys(settings)
    # Of both, the owner comes first, who makes the other user.
    if settings.database_url is not None:
        owner = settings.database_owner_url
        variable = "NOVA_DATABASE_URL" if owner is None else "NOVA_DATABASE_OWNER_URL"
        await _check_database(variable, settings.database_url if owner is None else owner)
    elif settings.database_owner_url is not None:
        raise ConfigurationError("NOVA_DATABASE_OWNER_URL is set and NOVA_DATABASE_URL is not. Set both, or none.")
    if settings.redis_url is not None:
        await _check_redis(settings.redis_url)


def _check_host(variable: str, host: str) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        raise ConfigurationError(
            f"{variable} is {host!r}, which is no address of this machine ({error.strerror or error}). Set it to one, "
            "such as 127.0.0.1, or 0.0.0.0 for all."
        ) from error


def _check_telegram(settings: Settings) -> None:
    if (settings.telegram.token is not None or settings.telegram.bots) and find_spec("aiogram") is None:
        raise ConfigurationError(
            "A Telegram bot is configured, and aiogram is not installed: pip install 'nova-workers[telegram]', or "
            "unset NOVA_TELEGRAM__TOKEN and NOVA_TELEGRAM__BOTS."
        )


def _check_master_keys(settings: Settings) -> None:
    """Check the file of master keys, if there is one; the fleet makes it otherwise."""
    path = settings.home / MASTER_KEYS_FILE
    if settings.secrets.are_given or not path.exists():
        return
    try:
        SecretSettings(keys=tuple(SecretStr(line) for line in path.read_text(encoding="utf-8").split()))
    except ValidationError as error:
        problems = "; ".join(problem_of(item) for item in error.errors(include_input=False))
        raise ConfigurationError(
            f"{str(path)!r}, the master keys of secrets, cannot be used: {problems}. Put the file of a backup in its "
            "place, or set NOVA_SECRETS__KEYS."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{str(path)!r}, the master keys of secrets, cannot be read: {error}") from error


async def _check_database(variable: str, url: SecretStr) -> None:
    try:
        connection = await asyncpg.connect(url.get_secret_value(), timeout=_ANSWER_S, statement_cache_size=0)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise ConfigurationError(
            f"{variable} names a database that refuses or does not answer ({in_one_line(error)}). Correct host, user, "
            "password or database in it, or start that server; without it `nova up` starts a Postgres of its own."
        ) from error
    connection.terminate()


async def _check_redis(url: SecretStr) -> None:
    try:
        redis = Redis.from_url(url.get_secret_value(), socket_timeout=_ANSWER_S, socket_connect_timeout=_ANSWER_S)
        async with aclosing(redis), asyncio.timeout(_ANSWER_S):
            await redis.ping()
    except (RedisError, OSError, TimeoutError, ValueError, TypeError) as error:
        # Also a parameter of the address that the client does not know.
        raise ConfigurationError(
            f"NOVA_REDIS_URL names a Redis that refuses or does not answer ({in_one_line(error)}). Correct it, or "
            "start that server; without it `nova up` starts a Valkey of its own."
        ) from error
