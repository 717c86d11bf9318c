"""The Telegram channel: a global bot, and bots of single agents."""
