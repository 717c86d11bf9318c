"""The task scheduler."""
