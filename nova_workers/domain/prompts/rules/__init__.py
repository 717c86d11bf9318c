"""System prompts: what a model gets beside the conversation. Pure: no I/O, no clock."""

from nova_workers.domain.prompts.rules.builder import build_system_prompt, sections_of, stable_prefix_chars
from nova_workers.domain.prompts.rules.event import event_words, is_event_block
from nova_workers.domain.prompts.rules.markup import SECTIONS
from nova_workers.domain.prompts.rules.words import (
    ASK_USER,
    STATE,
    WAYS,
    background_words,
    caller_words,
    formatting_words,
    state_words,
    storage_words,
)
from nova_workers.domain.prompts.rules.work import WORK_PROMPT, work_words

__all__ = [
    "ASK_USER",
    "SECTIONS",
    "STATE",
    "WAYS",
    "WORK_PROMPT",
    "background_words",
    "build_system_prompt",
    "caller_words",
    "event_words",
    "formatting_words",
    "is_event_block",
    "sections_of",
    "stable_prefix_chars",
    "state_words",
    "storage_words",
    "work_words",
]
