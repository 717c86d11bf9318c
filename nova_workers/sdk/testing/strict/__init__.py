"""What the providers of models refuse, so that a model of tests refuses it too.

Each module has the rules of one wire form: the provider's documents, and its error messages as they are reported in
public. Nothing of the product is used here, so that a wrong belief in its code meets another opinion.
"""

from nova_workers.sdk.testing.strict.messages_api import check_messages
from nova_workers.sdk.testing.strict.openai_chat import check_chat
from nova_workers.sdk.testing.strict.openai_responses import check_responses
from nova_workers.sdk.testing.strict.refused import Refused

__all__ = ["Refused", "check_chat", "check_messages", "check_responses"]
