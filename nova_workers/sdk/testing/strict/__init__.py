"""What the provider of the Messages API refuses, so that a model of tests refuses it too.

The rules are the provider's documents, and its error messages as they are reported in public. Nothing of the product is
used here, so that a wrong belief in its code meets another opinion.
"""

from nova_workers.sdk.testing.strict.messages_api import check_messages
from nova_workers.sdk.testing.strict.refused import Refused

__all__ = ["Refused", "check_messages"]
