"""Checks the chain over records of the audit log, as a reader of the log."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass

from nova_workers.contracts.http.overview.audit import AuditChainView, AuditEventView


@dataclass(frozen=True, slots=True)
class CheckedChain:
    """What was found.

    Attributes:
        records: Those that fit.
        unsealed: Those that are not in the chain yet.
        seq: Number of the last one that fits.
        hash: Of that one.
        problem: The first that does not fit, and why; None if all do.
    """

    records: int
    unsealed: int
    seq: int
    hash: str
    problem: str | None = None

    @property
    def sentence(self) -> str:
        """What was found, if all fits."""
        waiting = f", and {self.unsealed} wait for the next seal" if self.unsealed else ""
        return f"{self.records} records are chained as they were written{waiting}."


async def check_chain(
    chain: AuditChainView, records: AsyncIterable[AuditEventView], kept: tuple[int, str] | None = None
) -> CheckedChain:
    """Check records against their chain.

    Args:
        chain: As the log stated it before the records were read.
        records: All of the log, in the order of the chain.
        kept: Number and hash of a record, as they were once, from elsewhere.
    """
    heads = {chain.anchor_seq: chain.anchor_hash}
    wanted = {chain.seq: chain.hash}
    seq, before, count, unsealed = chain.anchor_seq, chain.anchor_hash, 0, 0
    problem: str | None = None
    async for record in records:
        if record.seq is None or record.hash is None:
            unsealed += 1
            continue
        problem = _misfit(record, seq, before)
        if problem is not None:
            break
        seq, before, count = record.seq, record.hash, count + 1
        if seq in wanted or (kept is not None and seq == kept[0]):
            heads[seq] = before
    if problem is None and heads.get(chain.seq) != chain.hash:
        problem = (
            f"The chain ends with record {seq}, and the log had {chain.seq}: the last ones were deleted."
            if seq < chain.seq
            else f"Record {chain.seq} is not the one that the head of the chain names."
        )
    if problem is None and kept is not None:
        problem = _unlike_kept(kept, chain.anchor_seq, heads)
    return CheckedChain(count, unsealed, seq, before, problem)


def _unlike_kept(kept: tuple[int, str], anchor_seq: int, heads: Mapping[int, str]) -> str | None:
    seq, hash_ = kept
    if seq < anchor_seq:
        # Not passed over: a chain that was written anew may have any anchor.
        return (
            f"Record {seq}, whose hash was kept elsewhere, was deleted, as all up to {anchor_seq} were: there is "
            "nothing to compare it with. Give a newer head."
        )
    if heads.get(seq) != hash_:
        return f"Record {seq} is not the one whose hash was kept elsewhere: the chain was written anew."
    return None


def _misfit(record: AuditEventView, seq: int, before: str) -> str | None:
    if record.seq != seq + 1:
        return f"Record {seq + 1} is missing: after {seq} comes {record.seq} ({record.id}, {record.action})."
    if record.chained(before) != record.hash:
        return (
            f"Record {record.seq} ({record.id}, {record.action} of {record.target_id!r} at {record.at}) does not fit: "
            "it, or the hash before it, was changed."
        )
    return None
