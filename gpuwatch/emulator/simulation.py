"""The marketplace without its HTTP server: market, instances and account under one lock and one clock."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.instances.fleet import Fleet
from gpuwatch.emulator.instances.ledger import Ledger
from gpuwatch.emulator.instances.lifecycles import Delays
from gpuwatch.emulator.instances.machine_sshd import EmulatedMachines
from gpuwatch.emulator.limits import Limits
from gpuwatch.emulator.market.emulated_market import EmulatedMarket
from gpuwatch.emulator.market.search import CAP_ROWS, Search


@dataclass(slots=True, kw_only=True)
class MarketplaceOptions:
    """The options of a marketplace; docs/emulator.md explains each."""

    seed: int = 7
    key: str = "demo-key"
    account_id: int = 123456
    size: int = 200
    odd_rows: bool = True
    credit_usd: float = 100.0
    delays: Delays = field(default_factory=Delays)
    default_rows: int | None = CAP_ROWS
    keyless_rows: int | None = CAP_ROWS
    keyed_rows: int | None = None
    rows_per_day: int | None = None
    intervals: bool = False
    interval_shape: str = "detail"
    search_every_s: float | None = None
    gone_shape: str = "400"
    bad_key_status: int | None = None
    new_account: bool = True
    gzip: bool = False
    list_lag_s: float = 0.0
    list_omits_s: float = 0.0
    omits_single: bool = False
    charge_factor: float = 1.0
    charge_decimals: int = 3
    charges_lag_s: float = 0.0
    charges_today: bool = True
    ssh_at: tuple[str, int] | None = None
    machines: Path | None = None  # a folder: each running instance gets a real SSH server
    page_cap: int = 25


@dataclass(slots=True)
class RenterAccount:
    """The only renter of this marketplace."""

    email: str = "renter@example.org"
    ssh_keys: list[dict[str, Any]] = field(default_factory=list)
    instance_keys: dict[int, dict[int, str]] = field(default_factory=dict)  # by contract, then by number
    templates: dict[str, dict[str, Any]] = field(default_factory=dict)  # by hash
    paid_at: int = 0  # Unix seconds


class Simulation:
    """Holds the state; `lock` guards all of it."""

    def __init__(self, options: MarketplaceOptions, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.lock = threading.RLock()
        self.market = EmulatedMarket(options.seed, clock, options.size, options.odd_rows)
        self.ledger = Ledger(self.settle)
        self.fleet = Fleet(self.market, self.ledger, clock, options.credit_usd, options.delays)
        self.fleet.machines = None if options.machines is None else EmulatedMachines(options.machines)
        self.fleet.charge_factor, self.fleet.ssh_at = options.charge_factor, options.ssh_at
        self.search = Search(self.market, options.default_rows, options.keyless_rows, options.keyed_rows)
        self.limits = Limits(options.intervals, options.interval_shape, options.rows_per_day, options.search_every_s)
        self.account = RenterAccount(paid_at=int(clock()))
        self.delayed_effects: list[tuple[float, Any]] = []

    def settle(self) -> float:
        """Bring everything up to date and return the time: late effects first, then the instances."""
        with self.lock:
            now = self.clock()
            due = [entry for entry in self.delayed_effects if entry[0] <= now]
            self.delayed_effects = [entry for entry in self.delayed_effects if entry[0] > now]
            for _, effect in due:
                effect()
            self.fleet.settle(now)
            return now
