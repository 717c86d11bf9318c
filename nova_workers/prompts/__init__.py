"""System prompts. Pure: no I/O, no clock."""

from nova_workers.prompts.builder import SECTIONS, build_system_prompt, stable_prefix_chars

__all__ = ["SECTIONS", "build_system_prompt", "stable_prefix_chars"]
