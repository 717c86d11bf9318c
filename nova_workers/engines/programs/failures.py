"""Converts what a program reports as an error to the engine contract's failures."""

from nova_workers.base.errors import EngineFailure
from nova_workers.engines.programs.frames import Ended
from nova_workers.engines.programs.vendor import Vendor
from nova_workers.engines.turn import ContentRefused
from nova_workers.engines.verdicts import INVALID, NO_KEY, OUT_OF_ORDER, TOO_LARGE, VerdictTable


def reported(message: str, text: str, verdicts: VerdictTable, *, status: int | None = None) -> EngineFailure:
    """Return the failure that a program reports: an `AttemptFailed` if it is the provider's.

    Args:
        message: What the program said.
        text: That for people, without secrets.
        verdicts: What its messages mean.
        status: Of HTTP, if it says that too.
    """
    verdict = verdicts.of(message, status=status)
    if verdict is None:
        return EngineFailure(text, kind="unknown", retryable=False)
    if status == TOO_LARGE:
        return ContentRefused(text, named=False, too_large=True)
    if verdict == INVALID:
        # The program numbers messages differently, so the place is unknown.
        return ContentRefused(text, named=verdicts.media.search(message) is not None)
    return verdict.failure(text)


def program_ended(vendor: Vendor, ended: Ended) -> EngineFailure:
    """Return the failure of a program that ended without a result."""
    said = ended.complaints or "nothing"
    message = f"The program {vendor.command!r} ended with {ended.exit_code} before the turn did. It wrote: {said}"
    verdict = vendor.verdicts.of(ended.complaints)
    return EngineFailure(message, kind="unknown", retryable=True) if verdict is None else verdict.failure(message)


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
    return OUT_OF_ORDER.failure(
        f"The program {vendor.command!r} reported nothing for {silence_s:g} s, and was stopped."
    )


def no_key(vendor: Vendor, variable: str) -> EngineFailure:
    """Return the failure of a turn without a key."""
    return NO_KEY.failure(
        f"The engine {vendor.name!r} has no key. Set NOVA_{vendor.name.upper()}__API_KEY or {variable} of the workers."
    )
