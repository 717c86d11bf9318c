"""Finds names of models and providers in the artifacts of policies that hide them. Pure.

A name with a version is found wherever it occurs. A name that is also a word (`haiku`, `claude`, `meta`) counts only
beside words that talk of a model, so that a poem, a person or a company may be named.
"""

import re
from collections.abc import Iterable
from typing import Final

_SEPARATORS: Final = re.compile(r"[\s._:/@\\-]+")
_FAMILIES: Final = re.compile(
    r"\bchat[\s-]?gpt\b|\bgpt[\s_.-]?(?:[2-9]|oss|neo|j)(?:[\s_.-]?(?:\d|o|turbo|mini|nano|pro|codex|vision"
    r"|preview)\w{0,10}){0,4}\b"
    r"|\bo[134](?:[\s-](?:mini|pro|preview))\b|\bclaude[\s_.-]{0,3}(?:v?\d(?:[\s_.-]\d{1,2})?|haiku|sonnet"
    r"|opus|instant|code|fable|mythos)\b"
    r"|\b(?:haiku|sonnet|opus)[\s_.-]?[1-9](?:[._-]\d)?\b|\bgemini[\s_.-]{0,3}(?:\d|pro|flash|ultra|nano)\b"
    r"|\bgemma[\s_.-]?\d"
    r"|\bllama[\s_.-]?[1-9]\b|\b(?:mi[sx]tral|codestral|ministral|magistral|pixtral)[\s_.-]{0,2}(?:\d|large"
    r"|small|medium|nemo|tiny|latest|ai)\b"
    r"|\bqwen[\s_.-]?(?:\d|max|plus|turbo|coder)|\bdeepseek[\s_.-]{0,2}(?:v\d|r\d|chat|coder|reasoner)"
    r"|\bgrok[\s_.-]?[1-9]|\bcommand[\s-]r(?:\+|[\s-]plus)?\b"
    r"|\bphi[\s-][1-4](?:[\s.-](?:mini|medium|small|\d))?\b|\bkimi[\s-]?k\d|\bglm[\s-]?\d"
    r"|\bminimax[\s-]?(?:m\d|text)|\bnova[\s-](?:lite|micro|pro|premier)\b"
    r"|\btext-davinci|\bdavinci-00\d|\bamazon[\s-]bedrock\b|\bvertex[\s-]?ai\b|\bazure[\s-]openai\b",
    re.IGNORECASE,
)
_MAKERS: Final = re.compile(
    r"\b(?:openai|anthropic|openrouter|deepseek|mistral\s?ai|hugging\s?face|x\.ai|cohere|minimax|dashscope)\b",
    re.IGNORECASE,
)
_SQUASHED_MAKERS: Final = ("openai", "anthropic", "openrouter", "chatgpt", "deepseek")
_WORDS: Final = (
    "haiku",
    "sonnet",
    "opus",
    "claude",
    "gemini",
    "llama",
    "mistral",
    "qwen",
    "grok",
    "copilot",
    "bedrock",
    "gpt",
)
_TALK: Final = (
    r"models?|llms?|language\smodel|engine|provider|backend|assistant|ai|a\.i\.|api|sdk|anthropic|openai"
    r"|modell|anbieter|modelo|modèle|模型"
)
_ACTS: Final = (
    r"(?:generated|written|made|created|produced|answered|powered|composed|drafted|reviewed|crafted|built"
    r"|trained|run|running|runs|based|hosted|erstellt|geschrieben|erzeugt)"
    r"\s(?:by|with|on|using|via|von|mit)|using|via|i\sam|i'm|i\u2019m|my\sname\sis|called|ich\sbin"
)


class HiddenNames:
    """Names that a policy hides."""

    def __init__(self, names: Iterable[str]) -> None:
        """Store the names of the policy's models and providers, and of those that answered."""
        plain, marked = set[str](_WORDS), set[str]()
        for name in names:
            parts = [part for part in _SEPARATORS.split(name.casefold()) if part]
            short = "".join(parts)
            if len(short) < 3:
                continue
            is_word = len(parts) == 1 and short.isalpha()
            (plain if is_word else marked).add(r"[\s._:/@\\-]{0,3}".join(map(re.escape, parts)))
        words = "|".join(sorted(plain, key=len, reverse=True))
        self._marked = (
            re.compile(rf"(?<![^\W_])(?:{'|'.join(sorted(marked, key=len, reverse=True))})(?![^\W_])", re.IGNORECASE)
            if marked
            else None
        )
        between = r"[\s\"'`(:=*_,-]{1,4}"
        self._words = re.compile(
            rf"\b(?:{_TALK}){between}(?:(?:is|was|named|called|ist|hei(?:ß|ss)t|from|of|by|von|the|a"
            rf"|an){between}){{0,2}}(?:{words})\b"
            rf"|\b(?:{_ACTS}){between}(?:(?:the|a|an|model|by){between}){{0,2}}(?:{words})\b"
            rf"|\b(?:{words})[\s\"'`)*_,-]{{1,3}}(?:(?:is|as)\s(?:a|an|the|my)\s)?(?:{_TALK})\b",
            re.IGNORECASE,
        )

    def occur_in(self, text: str) -> bool:
        """Return whether one of them is in a text."""
        return bool(
            _FAMILIES.search(text)
            or _MAKERS.search(text)
            or (self._marked is not None and self._marked.search(text))
            or self._words.search(text)
        )
