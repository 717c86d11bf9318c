"""The Telegram channel: a global bot, and bots of single agents."""

from nova_workers.channels.telegram.deferred_types import import_aiogram

# Before any module of this package imports aiogram.
import_aiogram()
