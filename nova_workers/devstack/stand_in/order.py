"""The stand-in's answers to the roles of the built-in policies of work orders: JSON of the schema that they ask for."""

import re

import orjson

from nova_workers.devstack.stand_in.reply import Reply

_PROPOSES = '"targetKey"'
_REVIEWS = '"approve"'
_FACTS = re.compile(r"^Facts:\n(?P<facts>\{.*\})$", re.MULTILINE)


def order_reply(prompt: str, asked: str) -> Reply | None:
    """Return the answer to a role of a work order, or None if the system prompt is of another kind."""
    if "JSON that fulfils this schema" not in prompt:
        return None
    if _REVIEWS in prompt:
        return Reply(orjson.dumps({"approve": True, "best": 0, "confidence": 0.9, "issues": []}).decode())
    return Reply(orjson.dumps(_proposal(asked)).decode()) if _PROPOSES in prompt else None


def _proposal(asked: str) -> dict[str, object]:
    found = _FACTS.search(asked)
    facts = orjson.loads(found["facts"]) if found else {}
    return {
        "targetKey": f"{facts.get('targetSection', 'page')}.headline",
        "value": "Put it down. The fleet keeps it.",
        "rationale": "It is shorter, and says what the reader gains.",
        "confidence": 0.9,
        "risks": [],
        "assumptions": ["The reader knows what a fleet is."],
    }
