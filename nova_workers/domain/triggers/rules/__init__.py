"""Triggers: definitions, schedules, due occurrences, and the tick that fires them."""
