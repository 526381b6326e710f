"""Proof that the transaction coordinator knows of a transaction before its first record is stored (KIP-890)."""

from __future__ import annotations

from dataclasses import dataclass, field


class VerificationGuard:
    """Made for one transaction in one partition; each is like no other. Without one, records of an unknown transaction are
    refused: the coordinator's answer may be about a transaction that has ended meanwhile."""


@dataclass(slots=True)
class VerificationStateEntry:
    """The guard of a producer whose first record has not come, and the lowest sequence it tried with: higher ones must wait
    for that one (Kafka's VerificationStateEntry)."""

    timestamp_ms: int
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool
    guard: VerificationGuard = field(default_factory=VerificationGuard)

    def see(self, sequence: int, epoch: int) -> None:
        """A lower sequence of this epoch, or a higher epoch."""
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
