"""The reputation of a machine: its reliability in a poll, and the results of your own launches on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwatch.domain.market.offer import Offer

PRIOR_LAUNCHES = 4  # assumed: the polled reliability weighs as much as this many launches
UNKNOWN_RELIABILITY = 0.9  # assumed if the provider does not state it
ProviderMachine = tuple[str, str]  # (provider, machine)


class MachineRecord(msgspec.Struct, frozen=True):
    """Your own launches on one machine: successes, and failures of the machine."""

    good: int = 0
    bad: int = 0


MachineRecords = Mapping[ProviderMachine, MachineRecord]
_NONE = MachineRecord()


def reputation(reliability: float | None, record: MachineRecord) -> float:
    """The expected share of successful launches, 0 to 1; the polled reliability counts as `PRIOR_LAUNCHES` launches."""
    shown = UNKNOWN_RELIABILITY if reliability is None else reliability
    return (PRIOR_LAUNCHES * shown + record.good) / (PRIOR_LAUNCHES + record.good + record.bad)


def machine_record_of(offer: Offer, records: MachineRecords) -> MachineRecord:
    """The record of the offer's machine; empty for stock, which is a different machine each time."""
    if offer.machine_id is None or offer.terms.fungible:
        return _NONE
    return records.get((offer.provider, offer.machine_id), _NONE)
