"""How far a machine is trusted: the reliability that a poll shows of it, and how your own launches there went. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwatch.domain.market.offer import Offer

PRIOR_LAUNCHES = 4  # what the poll shows weighs as much as so many launches: assumed
UNKNOWN_RELIABILITY = 0.9  # where the provider shows none: assumed
ProviderMachine = tuple[str, str]  # (provider, machine)


class MachineRecord(msgspec.Struct, frozen=True):
    """Your own launches on one machine: how many went well, and how many the machine failed."""

    good: int = 0
    bad: int = 0


MachineRecords = Mapping[ProviderMachine, MachineRecord]
_NONE = MachineRecord()


def reputation(reliability: float | None, record: MachineRecord) -> float:
    """From 0 to 1: the share of launches that go well there, the poll's figure counted as `PRIOR_LAUNCHES` of them."""
    shown = UNKNOWN_RELIABILITY if reliability is None else reliability
    return (PRIOR_LAUNCHES * shown + record.good) / (PRIOR_LAUNCHES + record.good + record.bad)


def record_of(offer: Offer, records: MachineRecords) -> MachineRecord:
    """Of the offer's machine; none for stock, which is a different machine each time."""
    if offer.machine_id is None or offer.terms.fungible:
        return _NONE
    return records.get((offer.provider, offer.machine_id), _NONE)
