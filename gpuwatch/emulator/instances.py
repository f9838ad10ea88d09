"""Instances from create to destroy: a state machine driven by the clock, with a meter on each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.ledger import Entry, Ledger, micro
from gpuwatch.emulator.lives import QUEUED, Delays, Step, fated, startup, up
from gpuwatch.emulator.machines import Listing, Machine, View
from gpuwatch.emulator.market import Market

GPU_BILLED = frozenset({"running", "frozen", "rebooting"})


@dataclass(slots=True)
class Instance:
    """One contract; what `GET instances/{id}/` says is derived from it."""

    id: int
    offer_id: int
    machine: Machine
    gpus: tuple[int, ...]
    row: dict[str, Any]  # the offer as it was rented, priced with this disk
    body: dict[str, Any]  # the create request
    created_at: float
    is_bid: bool
    base_usd_hour: float
    label: str | None
    delays: Delays
    actual_status: str | None = None
    intended_status: str = "running"
    cur_state: str = "running"
    next_state: str = "running"
    status_msg: str | None = None
    has_ssh: bool = False
    measured: bool = False
    running_since: float | None = None
    gpu_util: float = 97.0
    rival_usd_hour: float | None = None
    queued: bool = False
    steps: list[Step] = field(default_factory=list)

    @property
    def image(self) -> str:
        """The image that was asked for."""
        return str(self.body.get("image") or "vastai/base-image:latest")

    @property
    def disk_usd_hour(self) -> float:
        """What the disk costs while the instance exists."""
        return float(self.row["storage_total_cost"])

    @property
    def usd_hour(self) -> float:
        """What it costs per hour in its present state."""
        gpu = self.base_usd_hour if self.actual_status in GPU_BILLED else 0.0
        return gpu + self.disk_usd_hour


class Fleet:
    """All instances of the account.

    Args:
        market: gives and takes GPUs.
        ledger: the books that every create, destroy and rate is written to.
        clock: Unix seconds.
        credit_usd: what the account can spend; at zero everything stops.
        delays: how long each stage of a start takes.
    """

    def __init__(self, market: Market, ledger: Ledger, clock: Clock, credit_usd: float, delays: Delays) -> None:
        self.market = market
        self.ledger = ledger
        self.clock = clock
        self.credit_usd = credit_usd
        self.delays = delays
        self.alive: dict[int, Instance] = {}
        self.gone: dict[int, Instance] = {}

    # --- the renter's doings ---------------------------------------------------------------------------------

    def create(self, listing: Listing, body: dict[str, Any], now: float, *, won: bool = True) -> Instance:
        """Rent an offer; `won=False` makes the stopped contract of a bid that lost at once."""
        price = body.get("price")
        base = listing.slice.base_usd_hour if price is None else float(price)
        row = listing.row(View(False, float(body["disk"])), now)
        instance = Instance(
            id=self.market.numbers.next("contract"),
            offer_id=listing.id,
            machine=listing.machine,
            gpus=listing.slice.gpus,
            row=row,
            body=body,
            created_at=now,
            is_bid=price is not None,
            base_usd_hour=base,
            label=body.get("label"),
            delays=self.delays,
        )
        self.alive[instance.id] = instance
        self._book("create", instance, now)
        if won:
            self.market.take(listing, instance.id)
            self._start(instance, now, listing.machine.defect)
        else:
            instance.rival_usd_hour = listing.slice.min_bid_usd_hour
            self._change(instance, stopped_states() | {"actual_status": "loading"}, now)
        return instance

    def doom(self, instance: Instance, fate: str, after_s: float) -> None:
        """Decide how a fresh instance will end; see `lives.FATES`."""
        instance.steps = fated(instance.steps, fate, after_s)

    def destroy(self, instance: Instance, now: float) -> None:
        """End an instance; its GPUs are for sale again."""
        del self.alive[instance.id]
        self.gone[instance.id] = instance
        instance.steps = []
        self.ledger.meter(instance.id).set_rate(now, 0.0)
        self._book("destroy", instance, now)
        self.market.release(instance.machine, instance.id)

    def stop(self, instance: Instance, now: float) -> None:
        """Stop as the renter asked: the disk stays and is billed, the GPUs are for sale again."""
        instance.steps, instance.queued = [], False
        self._change(instance, stopped_states() | {"actual_status": "exited", "status_msg": None}, now)
        self.market.release(instance.machine, instance.id)

    def start(self, instance: Instance, now: float) -> bool:
        """Start a stopped instance; False means that its GPUs are taken and the start waits for them."""
        if instance.intended_status == "running" and not instance.queued and instance.rival_usd_hour is None:
            return True
        if not self._can_have_gpus(instance):
            instance.queued = True
            instance.status_msg = QUEUED
            return False
        self._resume(instance, now)
        return True

    def set_bid(self, instance: Instance, usd_hour: float, now: float) -> None:
        """Change a bid; a bid above the rival's wins the GPUs back."""
        instance.base_usd_hour = usd_hour
        self._book("bid", instance, now)
        self._meter(instance, now)
        if instance.rival_usd_hour is not None and usd_hour >= instance.rival_usd_hour:
            self._resume(instance, now)

    def reboot(self, instance: Instance, now: float) -> None:
        """Restart the container without giving the GPUs back."""
        self._change(instance, {"actual_status": "rebooting", "measured": False}, now)
        again = Delays(running_s=instance.delays.reboot_s, measured_s=instance.delays.measured_s)
        instance.steps = up(now, again, instance.image)

    # --- what befalls an instance ----------------------------------------------------------------------------

    def outbid(
        self,
        instance: Instance,
        now: float,
        *,
        as_stop: bool,
        rival_usd_hour: float | None = None,
        resume_after_s: float | None = None,
    ) -> None:
        """Somebody pays more: stopped, in the documented disguise or in the one seen live.

        Args:
            instance: who loses its GPUs.
            now: when.
            as_stop: the disguise seen live: every word says `stopped`, as if the renter had stopped it.
            rival_usd_hour: what the other one pays; a bid of at least that wins the GPUs back.
            resume_after_s: when the other one is done; None is not by itself.
        """
        instance.rival_usd_hour = rival_usd_hour or instance.base_usd_hour * 1.25
        instance.steps = [] if resume_after_s is None else [Step(now + resume_after_s, {"event": "resume"})]
        changes: dict[str, Any] = {"actual_status": "stopped", "cur_state": "stopped", "status_msg": None}
        if as_stop:
            changes = stopped_states() | {"actual_status": "exited", "status_msg": None}
        self._change(instance, changes, now)

    def rival_leaves(self, instance: Instance, now: float) -> None:
        """The other bidder is done: the instance resumes by itself."""
        if instance.rival_usd_hour is not None and instance.id in self.alive:
            self._resume(instance, now)

    def befall(self, instance: Instance, changes: dict[str, Any], now: float) -> None:
        """Set an instance's public state outright; nothing that was planned for it happens any more."""
        instance.steps = []
        self._change(instance, changes, now)

    # --- time ------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Let everything happen that was due until now, in order, credit running out included."""
        while True:
            due = min((one.steps[0].at for one in self.alive.values() if one.steps), default=float("inf"))
            broke_at = self._broke_at()
            if min(due, broke_at) > now:
                break
            if broke_at < due:
                self._stop_all(broke_at)
                continue
            for instance in list(self.alive.values()):
                if instance.steps and instance.steps[0].at <= due:
                    self._step(instance)
        for instance in self.alive.values():
            if instance.queued and self._can_have_gpus(instance):
                self._resume(instance, now)

    def credit(self, now: float) -> float:
        """Answer what the account has left, USD."""
        return self.credit_usd - float(self.ledger.spent_usd(now))

    def _broke_at(self) -> float:
        burn = float(self.ledger.burn_usd_hour())
        billed = any(one.actual_status in GPU_BILLED or one.intended_status == "running" for one in self.alive.values())
        if burn <= 0 or not billed:
            return float("inf")
        now = self.clock()
        return now + self.credit(now) / burn * 3600

    def _stop_all(self, at: float) -> None:
        for instance in list(self.alive.values()):
            self.stop(instance, at)

    def _step(self, instance: Instance) -> None:
        step = instance.steps.pop(0)
        event = step.changes.get("event")
        if event is None:
            self._change(instance, step.changes, step.at)
        elif event == "resume":
            self.rival_leaves(instance, step.at)
        else:
            self.outbid(instance, step.at, as_stop=event == "outbid_as_stop")

    # --- inside ----------------------------------------------------------------------------------------------

    def _start(self, instance: Instance, now: float, fate: str | None) -> None:
        instance.steps = startup(now, instance.delays, instance.image)
        if fate is not None:
            self.doom(instance, fate, 0.0)
        self._meter(instance, now)

    def _resume(self, instance: Instance, now: float) -> None:
        instance.queued, instance.rival_usd_hour = False, None
        self.market.hold(instance.machine, instance.gpus, instance.id)
        running = {"intended_status": "running", "cur_state": "running", "next_state": "running"}
        self._change(instance, running | {"actual_status": "loading", "status_msg": None, "has_ssh": True}, now)
        again = Delays(running_s=instance.delays.start_s, measured_s=instance.delays.measured_s)
        instance.steps = up(now, again, instance.image)

    def _can_have_gpus(self, instance: Instance) -> bool:
        return all(instance.machine.holders.get(gpu) in (None, instance.id) for gpu in instance.gpus)

    def _change(self, instance: Instance, changes: dict[str, Any], at: float) -> None:
        was_running = instance.actual_status == "running"
        for name, value in changes.items():
            setattr(instance, name, value)
        if instance.actual_status != "running":
            instance.running_since, instance.measured = None, False
        elif not was_running:
            instance.running_since = at
        self._meter(instance, at)

    def _meter(self, instance: Instance, at: float) -> None:
        self.ledger.meter(instance.id).set_rate(at, instance.usd_hour)

    def _book(self, kind: str, instance: Instance, now: float) -> None:
        price = micro(instance.base_usd_hour + instance.disk_usd_hour)
        machine = instance.machine.id
        label, is_bid = instance.label, instance.is_bid
        self.ledger.append(Entry(now, kind, instance.id, instance.offer_id, machine, label, price, is_bid))


def stopped_states() -> dict[str, Any]:
    """The three words that all say `stopped` after a stop, whoever caused it."""
    return {"intended_status": "stopped", "cur_state": "stopped", "next_state": "stopped"}
