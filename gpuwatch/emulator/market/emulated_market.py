"""The market: machines, listings and prices, and how a tick changes them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.market.hardware import NO_GPU, gpu_named
from gpuwatch.emulator.market.machines import EmulatedListing, EmulatedMachine, GpuHolder, machine_fields
from gpuwatch.emulator.market.seeding import IdSequences, nested_slices, odd_machines, seeded_machine

OTHER_RENTER = "somebody else"
ODD_ROWS_MIN_SIZE = 64  # a smaller market would contain little else
REFERENCE_KEYS = frozenset(machine_fields(gpu_named("RTX 4090"), 0.0, 1))


class EmulatedMarket:
    """Machines and their listings; not thread-safe, its owner holds a lock.

    Args:
        seed: the same seed and clock give the same market.
        clock: returns Unix seconds.
        size: number of rows of a search without any filter; 0 is an empty market to publish into.
        odd_rows: mix the 31 recorded odd rows into a market of 64 rows or more (they count towards `size`).
    """

    def __init__(self, seed: int, clock: Clock, size: int, odd_rows: bool) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - a market must be reproducible, not secret
        self.clock = clock
        self.size = size
        self.id_sequences = IdSequences(self.rng)
        self.machines: dict[int, EmulatedMachine] = {}
        self.listings: dict[int, EmulatedListing] = {}
        self._ids: dict[int, list[int]] = {}
        self.version = 0
        if odd_rows and size >= ODD_ROWS_MIN_SIZE:
            for machine in odd_machines(clock()):
                self._add_machine(machine)
        self._fill()

    # --- actions of the owner of a test or a demo ------------------------------------------------------------

    def publish(self, gpu: str, count: int, usd_hour: float, fields: dict[str, Any]) -> int:
        """List a new machine and return the id of its offer of `count` GPUs; see `Marketplace.publish`."""
        model = gpu_named(gpu)
        if model is NO_GPU:
            count = 1
        size = int(fields.pop("machine_gpus", count))
        sizes = tuple(fields.pop("slices", (count,)))
        bid = float(fields.pop("min_bid", usd_hour * 0.6)) / count
        now = self.clock()
        base = machine_fields(model, now, size) | {"storage_cost": 0.0, "inet_down_cost": 0.0, "inet_up_cost": 0.0}
        machine = EmulatedMachine(
            int(fields.pop("machine_id", 0)) or self.id_sequences.next("machine"),
            int(fields.pop("host_id", 0)) or self.rng.randrange(1, 650_000),
            model,
            self.id_sequences.gpus(size),
            base | published_fields(fields),
            usd_hour / count,
            bid,
        )
        machine.defect = fields.pop("defect", None)
        machine.pinned = bool(fields.pop("pinned", True))
        machine.slices = [machine.make_slice(machine.gpu_ids[:part]) for part in sorted({*sizes, count})]
        for one in machine.slices:
            one.row |= {key: value for key, value in fields.items() if key in REFERENCE_KEYS}
        self._add_machine(machine)
        return next(i for i in self.ids_of(machine.id) if len(self.listings[i].slice.gpus) == count)

    def reprice(self, offer_id: int, usd_hour: float | None, min_bid: float | None) -> None:
        """Change the price of an offer, USD per hour for the whole of it."""
        listing = self.listings[offer_id]
        if usd_hour is not None:
            listing.slice.base_usd_hour = usd_hour
        if min_bid is not None:
            listing.slice.min_bid_usd_hour = listing.slice.row["min_bid"] = min_bid
        listing.clear_cache()
        self.version += 1

    def withdraw(self, offer_id: int) -> None:
        """Remove one offer for good; other slices of its machine stay."""
        listing = self.listings[offer_id]
        self._delist([offer_id])
        listing.machine.slices = [one for one in listing.machine.slices if one is not listing.slice]

    def remove_machine(self, machine_id: int) -> None:
        """Remove a machine with all its offers."""
        self._delist(self.ids_of(machine_id))
        self._ids.pop(machine_id, None)
        self.machines.pop(machine_id, None)

    def ids_of(self, machine_id: int) -> list[int]:
        """Return the current offer ids of a machine."""
        return list(self._ids.get(machine_id, ()))

    # --- renting ---------------------------------------------------------------------------------------------

    def take(self, listing: EmulatedListing, holder: GpuHolder) -> None:
        """Give a slice to a holder: every overlapping listing vanishes."""
        self.hold(listing.machine, listing.slice.gpus, holder)

    def hold(self, machine: EmulatedMachine, gpus: tuple[int, ...], holder: GpuHolder) -> None:
        """Mark GPUs as used and delist what is no longer rentable."""
        for gpu in gpus:
            machine.holders[gpu] = holder
        delisted = [i for i in self.ids_of(machine.id) if not machine.is_free(self.listings[i].slice.gpus)]
        self._delist(delisted)
        machine.stale_slices = True

    def release(self, machine: EmulatedMachine, holder: GpuHolder) -> None:
        """Free a holder's GPUs: lists the slices that become free, under new ids unless pinned."""
        for gpu in [gpu for gpu, gpu_holder in machine.holders.items() if gpu_holder == holder]:
            del machine.holders[gpu]
        if machine.id in self.machines:
            self._list_slices(machine)

    # --- time ------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Advance market time by one step: most machines stay, a few come, go, renumber or change their price."""
        for machine in list(self.machines.values()):
            if not machine.pinned:
                self._change_machine(machine)
        self._fill()
        self.version += 1

    def _change_machine(self, machine: EmulatedMachine) -> None:
        draw = self.rng.random()
        has_renter = any(isinstance(holder, int) for holder in machine.holders.values())
        if draw < 0.03 and not has_renter:
            self.remove_machine(machine.id)
        elif draw < 0.06 and machine.slices:
            free = [one for one in machine.slices if machine.is_free(one.gpus)]
            if free:
                self.hold(machine, self.rng.choice(free).gpus, OTHER_RENTER)
        elif draw < 0.08 and OTHER_RENTER in machine.holders.values():
            self.release(machine, OTHER_RENTER)
        elif draw < 0.083:
            self._change_price(machine)
        elif draw < 0.13 or machine.stale_slices:
            self._renumber(machine)

    def _change_price(self, machine: EmulatedMachine) -> None:
        factor = self.rng.choice((0.8, 0.9, 0.95, 1.05, 1.1, 1.25))
        machine.usd_gpu_hour *= factor
        machine.bid_usd_gpu_hour *= self.rng.choice((factor, 1.0))
        self._renumber(machine)

    def _renumber(self, machine: EmulatedMachine) -> None:
        """List a machine again: with other ids, and its free GPUs cut into slices again."""
        free = tuple(gpu for gpu in machine.gpu_ids if gpu not in machine.holders)
        self._delist(self.ids_of(machine.id))
        machine.slices = [machine.make_slice(gpus) for gpus in nested_slices(free)]
        machine.stale_slices = False
        self._list_slices(machine)

    def _fill(self) -> None:
        while len(self.listings) < self.size:
            machine = seeded_machine(self.rng, self.id_sequences, self.clock())
            room = self.size - len(self.listings)
            machine.slices = machine.slices[:room]
            if self.rng.random() < 0.02:
                for one in machine.slices:
                    one.row["rentable"] = False  # rented out, but still shown without a filter
            self._add_machine(machine)

    # --- listing ---------------------------------------------------------------------------------------------

    def _add_machine(self, machine: EmulatedMachine) -> None:
        self.machines[machine.id] = machine
        self._list_slices(machine)

    def _list_slices(self, machine: EmulatedMachine) -> None:
        ids = self._ids.setdefault(machine.id, [])
        listed = {self.listings[i].slice.gpus for i in ids}
        for one in machine.slices:
            if machine.is_free(one.gpus) and one.gpus not in listed:
                one.offer_id = one.offer_id if machine.pinned and one.offer_id else self.id_sequences.next("offer")
                self.listings[one.offer_id] = EmulatedListing(one.offer_id, machine, one)
                ids.append(one.offer_id)
        self.version += 1

    def _delist(self, offer_ids: Iterable[int]) -> None:
        for offer_id in offer_ids:
            self._ids[self.listings.pop(offer_id).machine.id].remove(offer_id)
        self.version += 1


def published_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Check and apply a publisher's fields of a machine; `verified` and `country` are short forms."""
    allowed = REFERENCE_KEYS | {"verified", "country", "defect", "pinned"}
    unknown = sorted(set(fields) - allowed)
    if unknown:
        raise TypeError(f"an offer has no field {', '.join(unknown)}")
    if "verified" in fields:
        verified = bool(fields.pop("verified"))
        fields |= {"verification": "verified" if verified else "unverified", "vericode": int(verified)}
    if "country" in fields:
        fields["geolocation"] = f"Somewhere, {fields.pop('country')}"
    if "reliability" in fields:
        fields.setdefault("reliability2", fields["reliability"])
    return {key: value for key, value in fields.items() if key in REFERENCE_KEYS}
