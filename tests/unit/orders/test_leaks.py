"""What no customer may see is found in artifacts, however it is disguised, and harmless artifacts pass."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nova_workers.base.observability.redactor import Redactor
from nova_workers.base.observability.secret_forms import SECRET_FORMS
from nova_workers.contracts.orders import AiArtifactV1, PolicyDocument, artifact_of
from nova_workers.domain.orders.rules.checking.leaks import LeakCheck
from nova_workers.domain.orders.rules.checking.traces import INTERNAL_ERRORS, TRACES
from nova_workers.domain.orders.rules.sealing import OrderSeal
from tests.requirements import proves
from tests.support.data import planted_leaks as planted
from tests.support.data.harmless_answers import harmless_answers
from tests.support.data.order_policies import POLICY, policy

CANARY = OrderSeal("trc_1", bytes(32)).canary
VALUE = "Tr0ub4dor-and-3-more"
WHOLE = ("as it is", "reversed", "base64", "base64, reversed", "zero width", "full width", "hexadecimal", "percent")
"""Disguises that keep every character."""


def _policy(**changes: Any) -> PolicyDocument:
    (role,) = POLICY["roles"]
    prompt = {"system": planted.PROMPT + "\n{{schema}}", "user": "Facts:\n{{inputs}}"}
    return policy(**{"roles": [{**role, "prompt": prompt}], **changes})


def _artifact(text: Any) -> AiArtifactV1:
    return artifact_of(
        "copy_proposal_v1",
        {
            "targetKey": "hero.headline",
            "value": text,
            "rationale": "It is shorter.",
            "confidence": 0.8,
            "risks": [],
            "assumptions": [],
        },
    )


def _rules(check: LeakCheck, text: Any) -> str:
    return "; ".join(check.rules_of(_artifact(text)))


@pytest.fixture(scope="module")
def check() -> LeakCheck:
    return LeakCheck(_policy(), canary=CANARY, secrets=Redactor({"SHOP_KEY": VALUE}))


LEAKS: Mapping[str, Sequence[str]] = {
    "a credential": list(planted.CREDENTIALS.values()),
    "a stack trace": list(planted.TRACES.values()),
    "": list(planted.ERRORS.values()),
    "a line of a prompt": [*planted.PROMPT.splitlines(), planted.PROMPT.splitlines()[2][10:60]],
    "the mark of a prompt": [CANARY],
    "a secret of the tenant": [VALUE],
    "internal record": ["run_01JZ0000000000000000000000"],
}


@proves("order.safe")
@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_is_found_in_every_disguise_that_keeps_it(check: LeakCheck, kind: str) -> None:
    for text in LEAKS[kind]:
        assert _rules(check, text), text
        for name in WHOLE:
            hidden = planted.DISGUISES[name](text)
            assert kind in _rules(check, f"Here is your headline.\n{hidden}\nEnjoy."), (name, text)


@pytest.mark.parametrize("disguise", planted.DISGUISES)
def test_prompts_marks_keys_and_traces_are_found_in_any_disguise(check: LeakCheck, disguise: str) -> None:
    spaced = [planted.TRACES["Python"], planted.TRACES["Go"], planted.ERRORS["Anthropic"]]
    keys = [planted.CREDENTIALS[name] for name in ("Anthropic API key", "GitHub token", "JWT", "Stripe key")]
    # Without its blanks a trace is none any more.
    for text in (*planted.PROMPT.splitlines(), CANARY, VALUE, *keys, *(spaced if disguise != "letters apart" else ())):
        assert _rules(check, f"Sure.\n{planted.DISGUISES[disguise](text)}\n"), text


@pytest.mark.parametrize(
    "value",
    [
        {"headline": "Hello", "note": planted.CREDENTIALS["Stripe key"]},
        {planted.CREDENTIALS["Stripe key"]: "Hello"},
        {"password": "hunter2x"},
        ["Hello", [["deep", {"list": planted.TRACES["Ruby"]}]]],
        planted.PROMPT.splitlines()[0].split(),
        [ord(char) for char in planted.PROMPT.splitlines()[0]],
        "padding " * 3_000 + planted.CREDENTIALS["PEM"] + " padding" * 3_000,
        " ".join(reversed(planted.PROMPT.splitlines()[2].split())),
        planted.PROMPT.splitlines()[2].replace("e", "\u0435").replace("a", "\u0430"),
    ],
    ids=["value", "key", "pair", "nested", "a word each", "codes", "long", "words reversed", "look-alikes"],
)
def test_a_leak_is_found_wherever_it_is_in_an_artifact(check: LeakCheck, value: Any) -> None:
    assert _rules(check, value)


def test_what_is_wrong_is_named_without_its_value(check: LeakCheck) -> None:
    rules = _rules(check, f"{planted.CREDENTIALS['GitHub token']} {VALUE} {CANARY}\n{planted.PROMPT}")
    assert rules.split("; ") == [
        "it contains a secret of the tenant: SHOP_KEY",
        "it contains a credential: GitHub token",
        "it contains the mark of a prompt",
        "it contains a line of a prompt",
        "it contains a secret of the tenant",
    ]


@proves("order.harmless")
def test_harmless_answers_pass(check: LeakCheck) -> None:
    changed = [(text, rules) for text in harmless_answers(1_000, seed=2026) if (rules := _rules(check, text))]
    assert len(changed) <= 10, changed
    assert not changed, "fewer than the promise, and each of them known"


def test_what_the_customer_sent_is_no_prompt() -> None:
    line = planted.PROMPT.splitlines()[2]
    assert not _rules(LeakCheck(_policy(), known_to_customer=f"Our own rule: {line}"), line)


HIDDEN = _policy(visibility={"models": False})


@pytest.mark.parametrize(
    "text",
    [
        "Written by gpt-4o-mini.",
        "GPT 4o mini wrote this.",
        "gpt4o wrote this",
        "g p t - 4 o - m i n i made it for you",
        "I am Claude, made by Anthropic.",
        "As ChatGPT, I cannot do that.",
        "claude-haiku-4-5-20251001",
        "The model haiku prefers this one.",
        "Powered by OpenAI",
        "Z3B0LTRvLW1pbmk=",
        "inim-o4-tpg",
        "gemini-2.5-pro was asked too",
        "acme-large-2 answered",
    ],
)
def test_names_that_the_policy_hides_are_found(text: str) -> None:
    assert "the policy hides" in _rules(LeakCheck(HIDDEN, names=["acme-large-2"]), text)


@pytest.mark.parametrize(
    "text",
    [
        "A haiku about autumn, in three lines.",
        "Claude Monet painted it in 1899.",
        "Beethoven's opus 27 and a sonnet by Shakespeare.",
        "The twins of Gemini, and a llama in the Andes.",
        "The mistral blows from the north.",
        "Our AI finds the best headline.",
        "Choose a model: S, M or L.",
    ],
)
def test_words_that_are_also_names_of_models_are_no_names(text: str) -> None:
    assert not _rules(LeakCheck(HIDDEN), text)


def test_names_of_models_may_be_shown_where_the_policy_does_not_hide_them(check: LeakCheck) -> None:
    assert not _rules(check, "Written by gpt-4o-mini of OpenAI, checked by Claude.")


def test_every_form_of_a_credential_is_found_by_its_literals() -> None:
    examples = [each for text in planted.CREDENTIALS.values() for each in (text, text.upper())]
    for form in SECRET_FORMS:
        found = [text for text in examples if form.pattern.get().search(text)]
        assert found, form.kind
        assert all(any(literal in text.lower() for literal in form.literals) for text in found), form.kind
        assert form.pattern.get().groups == 1, form.kind


def test_every_sign_of_an_internal_error_is_found_by_its_literals() -> None:
    examples = [*planted.TRACES.values(), *planted.ERRORS.values()]
    for sign in (*TRACES, *INTERNAL_ERRORS):
        found = [text for text in examples if sign.pattern.get().search(text if sign.cased else text.lower())]
        assert found, sign
        assert all(any(literal in text.lower() for literal in sign.literals) for text in found), sign


HOSTILE = (
    *(
        "sk-",
        "xai-",
        "eyJ.",
        "a1-",
        "at a.",
        "a/",
        "stack backtrace:\n\n",
        "-----BEGIN PRIVATE KEY-----",
        "%41",
        "&#65;",
    ),
    *(
        'File "',
        "A",
        "ABCDEFGH ",
        "0x00 ",
        "password=",
        "secret is ",
        "=",
        "bearer ",
        "://a:",
        "_",
        "\u200b",
        "goroutine 1 [",
    ),
)


def test_a_hostile_text_takes_linear_time(check: LeakCheck) -> None:
    for piece in HOSTILE:
        text = (piece * 10_000)[:10_000]
        began = time.process_time()
        _rules(check, text)
        # Some 20 to 60 ms; a pattern that backtracks takes seconds.
        assert time.process_time() - began < 1.5, piece


async def test_a_long_artifact_is_read_in_pieces_and_once(check: LeakCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = LeakCheck(_policy())
    read: list[int] = []
    broken = fresh._broken  # pyright: ignore[reportPrivateUsage] - how much is read at once

    def watched(text: str) -> list[str]:
        read.append(len(text))
        return broken(text)

    monkeypatch.setattr(fresh, "_broken", watched)
    artifact = _artifact("word " * 10_000)
    await fresh.read([artifact, artifact])
    assert not fresh.rules_of(artifact)
    assert len(read) > 10
    assert max(read) <= 4_000
