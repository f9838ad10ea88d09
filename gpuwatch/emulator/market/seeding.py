"""How the market is filled: seeded machines, the recorded odd rows, and how many of each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec

from gpuwatch.emulator.market.hardware import GPUS, GpuModel, gpu_named
from gpuwatch.emulator.market.machines import EmulatedMachine, Slice, machine_fields, random_fields

MACHINE_SIZES = (1, 1, 2, 2, 4, 4, 8, 8, 8, 10)


@dataclass(slots=True)
class IdSequences:
    """Issues ids that grow by uneven steps, like the marketplace's."""

    rng: random.Random
    offer: int = 48_000_000
    machine: int = 60_000
    gpu: int = 180_000
    contract: int = 44_700_000

    def next(self, kind: str) -> int:
        """Return a new id of this kind, greater than all previous ones."""
        value: int = getattr(self, kind) + self.rng.randrange(1, 9)
        setattr(self, kind, value)
        return value

    def gpus(self, count: int) -> tuple[int, ...]:
        """Return ids for this many GPUs, consecutive as on one machine."""
        first = self.next("gpu")
        self.gpu += count
        return tuple(range(first, first + count))


def nested_slices(gpus: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Cut GPUs into one slice per size, each contained in the next: renting one takes all of them."""
    smaller_sizes = [size for size in (1, 2, 4, 8, 16) if size < len(gpus)]
    return [gpus[:size] for size in smaller_sizes] + ([gpus] if gpus else [])


def seeded_machine(rng: random.Random, id_sequences: IdSequences, now: float) -> EmulatedMachine:
    """Draw a machine: model, size, price, trust and the figures around them."""
    gpu: GpuModel = rng.choices(GPUS, [gpu.weight for gpu in GPUS])[0]
    size = rng.choice(MACHINE_SIZES)
    fields = machine_fields(gpu, now, size) | random_fields(rng, gpu, now)
    host_price = max(0.02, round(gpu.usd_hour * 0.75 * rng.lognormvariate(0.15, 0.28), 2))  # what the host entered
    price = host_price / rng.choice((0.75, 0.75, 0.75, 0.775, 0.80))  # what the renter sees
    bid = price * rng.choice((0.4, 0.5, 0.6, 0.8, 1.0, 1.05))
    machine = EmulatedMachine(
        id_sequences.next("machine"), rng.randrange(1, 650_000), gpu, id_sequences.gpus(size), fields, price, bid
    )
    machine.slices = [machine.make_slice(gpus) for gpus in nested_slices(machine.gpu_ids)]
    return machine


def odd_machines(now: float) -> Iterator[EmulatedMachine]:
    """Yield the recorded odd rows as machines, with their dates moved to the present."""
    by_machine: dict[int, list[dict[str, Any]]] = {}
    text = resources.files("gpuwatch.emulator.market").joinpath("odd_rows.json").read_bytes()
    for row in msgspec.json.decode(text)["offers"]:
        by_machine.setdefault(row["machine_id"], []).append(row)
    for rows in by_machine.values():
        yield odd_machine(rows, now)


def odd_machine(rows: list[dict[str, Any]], now: float) -> EmulatedMachine:
    """Rebuild one recorded machine; every row keeps its oddities."""
    largest = max(rows, key=lambda row: int(row["num_gpus"]))
    count = largest["num_gpus"]
    gpu = gpu_named(largest["gpu_name"])
    slices = [odd_slice(row, now) for row in rows]
    ids = tuple(sorted({gpu_id for one in slices for gpu_id in one.gpus}))
    price, bid = largest["dph_base"] / count, largest["min_bid"] / count
    fields = {**slices[0].row}
    machine = EmulatedMachine(largest["machine_id"], largest["host_id"], gpu, ids, fields, price, bid)
    machine.slices = slices
    machine.pinned = True
    return machine


def odd_slice(row: dict[str, Any], now: float) -> Slice:
    """Make one slice of a recorded row, with keys that were added later and with current dates."""
    recorded_at = row["end_date"] - row["duration"]
    added_fields = {"target_reliability": 0.0, "sla_r_claim": 0.0, "sla_sigma_x": None, "sla_broker_rate": None}
    fields = {key: value for key, value in row.items() if key not in ("id", "ask_contract_id", "duration")}
    fields = added_fields | fields | {"end_date": row["end_date"] - recorded_at + now}
    if row["start_date"] is not None:
        fields["start_date"] = row["start_date"] - recorded_at + now
    return Slice(tuple(row["gpu_ids"]), fields, row["dph_base"], row["min_bid"])
