"""Inbound channels: conversations of people elsewhere (a chat, a mailbox, a program) with agents of the fleet.

A channel is a client of the HTTP API, like the command line. What is particular to one implements `InboundChannel`, in
a module or a folder of its own here, or in a package elsewhere; what all share is in `Relay`. Delivery channels, which
carry what agents hand over beside their answers, are in `nova_workers.domain.delivery.rules`.
"""

from nova_workers.channels.packages import InboundParts
from nova_workers.channels.port import Attachment, InboundChannel, Origin, Reply, Rests, SentMessages, Update
from nova_workers.channels.relay import Relay

__all__ = [
    "Attachment",
    "InboundChannel",
    "InboundParts",
    "Origin",
    "Relay",
    "Reply",
    "Rests",
    "SentMessages",
    "Update",
]
