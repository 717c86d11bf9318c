"""Decides whether an artifact may leave the fleet. Pure.

An artifact is read as one text: as it is, and in its other readings (reversed, decoded, without invisible characters).
A long one is read in pieces that overlap, so that an event loop is never blocked for long.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from nova_workers.base.observability.disguises import readings, squashed
from nova_workers.base.observability.redactor import Redactor
from nova_workers.base.observability.secret_forms import find_secrets
from nova_workers.contracts.orders import AiArtifactV1, PolicyDocument
from nova_workers.domain.orders.rules.checking.hidden_names import HiddenNames
from nova_workers.domain.orders.rules.checking.prompt_text import KnownTexts
from nova_workers.domain.orders.rules.checking.traces import INTERNAL_ERRORS, TRACES, finds

_PIECE_CHARS: Final = 4_000
_OVERLAP_CHARS: Final = 1_000
_LEAST_PROMPT_BYTES: Final = 36
"""The least letters and digits that follow each other as in a prompt: about eight words; fewer may be chance."""
_LEAST_SENTENCE_BYTES: Final = 24
"""The least size of a whole sentence or line of a prompt."""
_LEAST_WORDS: Final = 4
_LEAST_CANARY_BYTES: Final = 12
_LEAST_KNOWN_BYTES: Final = 12
"""The least letters and digits of a secret: one with fewer is found as it is, and encoded."""

_INTERNAL_IDS: Final = re.compile(
    r"\b(?:run|thr|turn|ten|wait|wop|wos|wot|key|oag|omsg|orc|evt|eff|emb|dlv|fir|mem|msg|note|tch|tlc|tre|trg|tst|use|whk|wkr|cmp)"
    r"_[0-9A-HJKMNP-TV-Z]{26}(?![0-9A-Za-z])",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(r"\{\{\s*\w*\s*\}\}")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?;:。\uff01\uff1f])\s+|\n+")
_SECRET_NAME: Final = re.compile(r"pass|pwd|secret|token|api.?key|credential", re.IGNORECASE)


class LeakCheck:
    """What the customer of one order may not see. It remembers what it has read."""

    def __init__(
        self,
        policy: PolicyDocument,
        *,
        canary: str | None = None,
        secrets: Redactor | None = None,
        names: Iterable[str] = (),
        known_to_customer: str = "",
    ) -> None:
        """Prepare the check.

        Args:
            policy: The order's policy: its prompts, and whether it hides its models.
            canary: The mark in the prompts of this order.
            secrets: Values of the tenant and of the fleet.
            names: Models and providers beside those of the policy, such as those that answered.
            known_to_customer: What the order contains: a prompt that has it in common is no secret.
        """
        self._secrets = Redactor() if secrets is None else secrets
        self._canary = KnownTexts([canary] if canary else [], least_bytes=_LEAST_CANARY_BYTES)
        self._own = _reduced(known_to_customer)
        self._prompts = _prompts_of(tuple(t for role in policy.roles for t in (role.prompt.system, role.prompt.user)))
        values = (value for value in self._secrets.values if any(char.isdigit() for char in value))
        self._known = [reduced for reduced in map(_reduced, values) if len(reduced) >= _LEAST_KNOWN_BYTES]
        visible = policy.visibility.models
        hidden = [name for role in policy.roles for model in role.models for name in (model.model, model.provider)]
        self._names = None if visible else HiddenNames([*hidden, *names])
        self._read: dict[bytes, tuple[str, ...]] = {}

    def rules_of(self, artifact: AiArtifactV1) -> Sequence[str]:
        """Return the rules that an artifact breaks, by kind and never by value. Empty if a customer may see it."""
        key, pieces = self._pieces(artifact)
        if pieces is None:
            return self._read[key]
        return self._keep(key, [self._broken(piece) for piece in pieces])

    async def read(self, artifacts: Iterable[AiArtifactV1]) -> None:
        """Read artifacts before their rules are needed, with a pause for the event loop after each piece."""
        for artifact in artifacts:
            key, pieces = self._pieces(artifact)
            broken: list[list[str]] = []
            for piece in pieces or ():
                broken.append(self._broken(piece))
                await asyncio.sleep(0)
            if pieces is not None:
                self._keep(key, broken)

    def _pieces(self, artifact: AiArtifactV1) -> tuple[bytes, list[str] | None]:
        wire = artifact.to_wire()
        key = orjson.dumps(wire)
        if key in self._read:
            return key, None
        return key, _pieces("\n".join(_texts(wire)))

    def _keep(self, key: bytes, broken: Iterable[Iterable[str]]) -> tuple[str, ...]:
        self._read[key] = tuple(dict.fromkeys(rule for rules in broken for rule in rules))
        return self._read[key]

    def _broken(self, text: str) -> list[str]:
        found = [f"it contains a secret of the tenant: {name}" for name in sorted(self._secrets.names_in(text))]
        reduced: set[bytes] = set()
        for reading in readings(text):
            found += self._broken_rules(reading)
            # Readings that differ in blanks, case and the like are one here.
            letters = _reduced(reading)
            if letters not in reduced:
                reduced.add(letters)
                found += self._known_texts(letters)
        if self._prompts.occur_in(_reduced(" ".join(reversed(text.split()))), beside=self._own):
            found.append("it contains a line of a prompt")
        return found

    def _broken_rules(self, text: str) -> Iterator[str]:
        lower = text.lower()
        for secret in find_secrets(text):
            yield f"it contains a credential: {secret.kind}"
        trace = finds(TRACES, text, lower)
        if trace is not None:
            yield f"it contains a stack trace of {trace}"
        error = finds(INTERNAL_ERRORS, text, lower)
        if error is not None:
            yield f"it contains {error}"
        if _INTERNAL_IDS.search(text):
            yield "it contains an id of an internal record"
        if self._names is not None and self._names.occur_in(text):
            yield "it contains the name of a model or a provider, which the policy hides"

    def _known_texts(self, reduced: bytes) -> Iterator[str]:
        if self._canary.occurs_in(reduced):
            yield "it contains the mark of a prompt"
        if self._prompts.occur_in(reduced, beside=self._own):
            yield "it contains a line of a prompt"
        if any(value in reduced for value in self._known):
            yield "it contains a secret of the tenant"


class _Prompts(NamedTuple):
    """The prompts of a policy, without what is inserted in them."""

    passages: KnownTexts
    sentences: tuple[bytes, ...]

    def occur_in(self, reduced: bytes, *, beside: bytes) -> bool:
        return self.passages.occurs_in(reduced, beside=beside) or any(
            each in reduced and each not in beside for each in self.sentences
        )


@lru_cache(maxsize=64)
def _prompts_of(templates: tuple[str, ...]) -> _Prompts:
    """Prepare the prompts of a policy, which its orders share."""
    passages = [part for text in templates for part in _PLACEHOLDER.split(text)]
    sentences = (each for part in passages for each in _SENTENCE_END.split(part))
    whole = (_reduced(each) for each in sentences if len(each.split()) >= _LEAST_WORDS or not each.isascii())
    return _Prompts(
        KnownTexts(passages, least_bytes=_LEAST_PROMPT_BYTES),
        tuple({each: None for each in whole if len(each) >= _LEAST_SENTENCE_BYTES}),
    )


def _reduced(text: str) -> bytes:
    return squashed(text).encode("utf-8", "surrogatepass")


def _pieces(text: str) -> list[str]:
    step = _PIECE_CHARS - _OVERLAP_CHARS
    return [text[at : at + _PIECE_CHARS] for at in range(0, max(len(text) - _OVERLAP_CHARS, 1), step)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
            if isinstance(inner, str) and _SECRET_NAME.search(str(key)):
                yield f'{key}="{inner}"'
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
