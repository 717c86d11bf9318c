"""Converts what a program reports as an error to the engine contract's failures."""

import re

from nova_workers.base.errors import EngineFailure
from nova_workers.base.observability.redaction import REDACTED, hide
from nova_workers.engines import bounds
from nova_workers.engines.programs.frames import Ended
from nova_workers.engines.programs.vendor import Vendor
from nova_workers.engines.resilience import AttemptFailed
from nova_workers.engines.turn import ContentRefused
from nova_workers.engines.verdicts import INVALID

__all__ = ["forbidden_tool", "no_key", "program_ended", "reported", "silent"]

_ABOUT_MEDIA = re.compile(r"\b(images?|media|base64|multimodal|vision)\b", re.IGNORECASE)


def reported(vendor: Vendor, message: str, secret: str | None) -> EngineFailure:
    """Return the failure that the program reports: an `AttemptFailed` if it is the provider's."""
    verdict = vendor.verdict(message)
    safe = hide(message.replace(secret, REDACTED) if secret else message)
    text = f"The program {vendor.command!r} reports: {bounds.said(safe)}"
    if verdict is None:
        return EngineFailure(text, kind="unknown", retryable=False)
    if verdict is INVALID:
        # The program numbers messages differently, so the place is unknown.
        return ContentRefused(text, named=_ABOUT_MEDIA.search(message) is not None)
    return AttemptFailed(text, kind=verdict.kind, retryable=verdict.retryable, cause=verdict.cause)


def program_ended(vendor: Vendor, ended: Ended) -> EngineFailure:
    """Return the failure of a program that ended without a result."""
    said = ended.complaints or "nothing"
    message = f"The program {vendor.command!r} ended with {ended.exit_code} before the turn did. It wrote: {said}"
    verdict = vendor.verdict(ended.complaints)
    if verdict is None:
        return EngineFailure(message, kind="unknown", retryable=True)
    return AttemptFailed(message, kind=verdict.kind, retryable=verdict.retryable, cause=verdict.cause)


def forbidden_tool(vendor: Vendor, tool: str) -> EngineFailure:
    """Return the failure of a program that has a tool of its own although it must have none."""
    return EngineFailure(
        f"The program {vendor.command!r} used its own tool {tool!r}, which nothing here has authorized. It was "
        f"stopped. Install a version of {vendor.package} that this version of Nova Workers is tested with "
        "(docs/engines.md).",
        kind="unknown",
        retryable=False,
    )


def silent(vendor: Vendor, silence_s: float) -> EngineFailure:
    """Return the failure of a program that reports nothing for too long."""
    return AttemptFailed(
        f"The program {vendor.command!r} reported nothing for {silence_s:g} s, and was stopped.",
        kind="model_error",
        retryable=True,
        cause="transport",
    )


def no_key(vendor: Vendor, variable: str) -> EngineFailure:
    """Return the failure of a turn without a key."""
    return AttemptFailed(
        f"The engine {vendor.name!r} has no key. Set NOVA_{vendor.name.upper()}__API_KEY or {variable} of the workers.",
        kind="auth_failure",
        retryable=False,
        cause="no_key",
    )
