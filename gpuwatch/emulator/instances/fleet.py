"""Instances from create to destroy: a state machine driven by the clock, with a meter for each."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.instances.emulated_instance import GPU_BILLED, NEVER, EmulatedInstance, RateChange
from gpuwatch.emulator.instances.increases import Increases, Proposal
from gpuwatch.emulator.instances.ledger import Ledger, LedgerEntry, to_microusd
from gpuwatch.emulator.instances.lifecycles import (
    QUEUED_MESSAGE,
    Delays,
    LifecycleStep,
    running_steps,
    startup_steps,
    with_lifecycle_fault,
)
from gpuwatch.emulator.instances.machine_sshd import EmulatedMachines
from gpuwatch.emulator.market.emulated_market import EmulatedMarket
from gpuwatch.emulator.market.machines import EmulatedListing, PriceView, price_fields

DELETED_AFTER_S = 48 * 3600.0  # an expired instance may be deleted this long after its end


class Fleet:
    """All instances of the account.

    Args:
        market: allocates and frees GPUs.
        ledger: records every create, destroy and rate.
        clock: Unix seconds.
        credit_usd: the account's credit; at zero everything stops.
        delays: duration of each stage of a start.
    """

    def __init__(self, market: EmulatedMarket, ledger: Ledger, clock: Clock, credit_usd: float, delays: Delays) -> None:
        self.market = market
        self.ledger = ledger
        self.clock = clock
        self.credit_usd = credit_usd
        self.delays = delays
        self.alive: dict[int, EmulatedInstance] = {}
        self.ended: dict[int, EmulatedInstance] = {}
        self.increases = Increases()
        self.charge_factor = 1.0  # the real charge as a multiple of the listed one
        self.machines: EmulatedMachines | None = None
        self.ssh_at: tuple[str, int] | None = None  # the real address of the ssh server of every new instance

    # --- the renter's actions --------------------------------------------------------------------------------

    def create(
        self, listing: EmulatedListing, body: dict[str, Any], now: float, *, is_started: bool = True
    ) -> EmulatedInstance:
        """Rent an offer; `is_started=False` creates the stopped contract of a bid that lost at once."""
        price = body.get("price")
        base = listing.slice.base_usd_hour if price is None else float(price)
        row = listing.row(PriceView(False, float(body["disk"])), now)
        instance = EmulatedInstance(
            id=self.market.id_sequences.next("contract"),
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
            end_date=float(row["end_date"]),
            min_bid=float(row["min_bid"]),
            ssh=self.ssh_at,
        )
        self.alive[instance.id] = instance
        self.ledger.store_order(instance.id, body)
        self._record("create", instance, now)
        if is_started:
            self.market.take(listing, instance.id)
            self._start(instance, now, listing.machine.defect)
        else:
            instance.rival_usd_hour = listing.slice.min_bid_usd_hour
            self._change(instance, stopped_states() | {"actual_status": "loading"}, now)
        return instance

    def inject_fault(self, instance: EmulatedInstance, kind: str, after_s: float) -> None:
        """Decide how a new instance will end; see `lifecycles.FATES`."""
        instance.steps = with_lifecycle_fault(instance.steps, kind, after_s)

    def destroy(self, instance: EmulatedInstance, now: float) -> None:
        """End an instance, and free its GPUs."""
        self._end(instance, "destroy", now)

    def stop(self, instance: EmulatedInstance, now: float) -> None:
        """Stop it for the renter: the disk stays and is billed, the GPUs become free."""
        instance.steps, instance.queued = [], False
        self._change(instance, stopped_states() | {"actual_status": "exited", "status_msg": None}, now)
        self.market.release(instance.machine, instance.id)

    def start(self, instance: EmulatedInstance, now: float) -> bool:
        """Start a stopped instance; False: its GPUs are taken, or a rival pays more, and the start waits."""
        if instance.intended_status == "running" and not instance.queued and instance.rival_usd_hour is None:
            return True
        if not self._can_run(instance):
            instance.queued = True
            instance.status_msg = QUEUED_MESSAGE
            return False
        self._resume(instance, now)
        return True

    def set_bid(self, instance: EmulatedInstance, usd_hour: float, now: float) -> None:
        """Change a bid; a bid of at least the rival's price wins the GPUs back."""
        instance.base_usd_hour = usd_hour
        self._record("bid", instance, now)
        self._meter(instance, now)
        if instance.rival_usd_hour is not None and usd_hour >= instance.rival_usd_hour:
            self._resume(instance, now)

    def reboot(self, instance: EmulatedInstance, now: float) -> None:
        """Restart the container without freeing the GPUs."""
        self._change(instance, {"actual_status": "rebooting", "measured": False}, now)
        restart_delays = Delays(running_s=instance.delays.reboot_s, measured_s=instance.delays.measured_s)
        instance.steps = running_steps(now, restart_delays, instance.image)

    # --- events --------------------------------------------------------------------------------------------

    def outbid(
        self,
        instance: EmulatedInstance,
        now: float,
        *,
        as_stop: bool,
        rival_usd_hour: float | None = None,
        resume_after_s: float | None = None,
    ) -> None:
        """Stop an instance because somebody pays more, in the documented form or in the one seen live.

        Args:
            instance: the one that loses its GPUs.
            now: the time.
            as_stop: the form seen live: every status says `stopped`, as if the renter had stopped it.
            rival_usd_hour: the rival's price, the new `min_bid`; a bid of at least this wins the GPUs back.
            resume_after_s: when the rival leaves; None: it does not leave by itself.
        """
        instance.min_bid = instance.rival_usd_hour = rival_usd_hour or instance.base_usd_hour * 1.25
        instance.steps = [] if resume_after_s is None else [LifecycleStep(now + resume_after_s, {"event": "resume"})]
        changes: dict[str, Any] = {"actual_status": "stopped", "cur_state": "stopped", "status_msg": None}
        if as_stop:
            changes = stopped_states() | {"actual_status": "exited", "status_msg": None}
        self._change(instance, changes, now)

    def remove_rival(self, instance: EmulatedInstance, now: float) -> None:
        """End the rival's rental: the instance resumes by itself."""
        if instance.rival_usd_hour is not None and instance.id in self.alive:
            instance.min_bid = float(instance.row["min_bid"])
            self._resume(instance, now)

    def befall(self, instance: EmulatedInstance, changes: dict[str, Any], now: float) -> None:
        """Set an instance's public state directly; cancels everything that was planned for it."""
        instance.steps = []
        self._change(instance, changes, now)

    def recover(self, instance: EmulatedInstance, now: float) -> None:
        """Bring back an absent host: the instance runs, and is measured again a moment later."""
        running = {"actual_status": "running", "cur_state": "running", "next_state": "running"}
        self._change(instance, running | {"intended_status": "running"}, now)
        instance.steps = [LifecycleStep(now + instance.delays.measured_s, {"measured": True})]

    def change_rates(self, instance: EmulatedInstance, gpu_usd_hour: float, storage_cost: float, now: float) -> None:
        """Change the price of a running contract from now on."""
        instance.base_usd_hour = gpu_usd_hour
        row = instance.row | {"storage_cost": storage_cost}
        instance.row = row | price_fields(row, gpu_usd_hour, float(instance.body["disk"]))
        instance.record_snapshot(now)
        self._record("rate", instance, now)
        self._meter(instance, now)

    def announce(self, instance: EmulatedInstance, proposal: Proposal, now: float) -> int:
        """Announce the host's price for the time after the contract's end; returns the announcement's number."""
        if proposal.effective_after_s is not None:
            self.set_end(instance, now + proposal.effective_after_s, now)
        old_fee, new_fee = proposal.fees or (None, None)
        increase = self.increases.announce(
            contract_id=instance.id,
            host_id=instance.machine.host_id,
            gpus=len(instance.gpus),
            old_gpu_usd_hour=instance.base_usd_hour,
            new_gpu_usd_hour=proposal.gpu_usd_hour,
            old_storage_cost=float(instance.row["storage_cost"]),
            new_storage_cost=proposal.storage_cost,
            old_fee=old_fee,
            new_fee=new_fee,
            contract_end=instance.end_date,
            ask_end=instance.end_date + proposal.extends_s,
            created_at=now,
        )
        return increase.id

    def accept(self, increase_id: int, now: float) -> int:
        """Accept for the renter: the contract is extended, the new rates begin at its old end. Returns the contract."""
        increase = self.increases.settle(increase_id, "accepted")
        instance = self.alive[increase.contract_id]
        disk = increase.new_storage_cost
        cost = float(instance.row["storage_cost"]) if disk is None else disk
        instance.cutover = RateChange(increase.contract_end, increase.new_gpu_usd_hour, cost)
        self.set_end(instance, increase.ask_end, now)
        return instance.id

    def set_end(self, instance: EmulatedInstance, end_at: float, now: float) -> None:
        """Move the end of a contract; an expired one becomes active again until then."""
        instance.end_date, instance.expired_at = end_at, None
        instance.record_snapshot(now)

    def charge(self, factor: float, now: float) -> None:
        """Charge another multiple of the listed rates from now on."""
        self.charge_factor = factor
        for instance in self.alive.values():
            self._meter(instance, now)

    # --- time ------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Apply everything that is due, in order, including running out of credit."""
        while True:
            due = min((self._next_event_at(one) for one in self.alive.values()), default=NEVER)
            credit_ends_at = self._credit_ends_at()
            if min(due, credit_ends_at) > now:
                break
            if credit_ends_at < due:
                self._stop_all(credit_ends_at)
            else:
                self._apply_due(due)
        if self.increases.pending:
            self.increases.lapse(now, set(self.alive))
        for instance in self.alive.values():
            if instance.queued and self._can_run(instance):
                self._resume(instance, now)

    def credit(self, now: float) -> float:
        """Return the account's credit, USD."""
        return self.credit_usd - float(self.ledger.spent_usd(now))

    def can_pay(self, now: float) -> bool:
        """Whether at least a micro-dollar is left."""
        return round(self.credit(now), 6) > 0

    def _apply_due(self, due: float) -> None:
        for instance in list(self.alive.values()):
            if self._contract_changes_at(instance) <= due:
                self._apply_contract_change(instance, due)
            elif instance.steps and instance.steps[0].at <= due:
                self._apply_step(instance)

    def _next_event_at(self, instance: EmulatedInstance) -> float:
        return min(self._contract_changes_at(instance), instance.steps[0].at if instance.steps else NEVER)

    def _contract_changes_at(self, instance: EmulatedInstance) -> float:
        """Return when its contract changes by itself: new rates, the end, the deletion after the end."""
        if instance.cutover is not None:
            return min(instance.cutover.at, instance.end_date)
        return instance.end_date if instance.expired_at is None else instance.expired_at + DELETED_AFTER_S

    def _apply_contract_change(self, instance: EmulatedInstance, at: float) -> None:
        cutover, instance.cutover = instance.cutover, None
        if cutover is not None and cutover.at < instance.end_date:
            self.change_rates(instance, cutover.gpu_usd_hour, cutover.storage_cost, at)
        elif instance.expired_at is None:
            self.stop(instance, at)
            instance.expired_at = at
        else:
            self._end(instance, "expired", at)

    def _credit_ends_at(self) -> float:
        burn_usd_hour = float(self.ledger.burn_usd_hour())
        billed = any(one.actual_status in GPU_BILLED or one.intended_status == "running" for one in self.alive.values())
        if burn_usd_hour <= 0 or not billed:
            return float("inf")
        now = self.clock()
        return now + self.credit(now) / burn_usd_hour * 3600

    def _stop_all(self, at: float) -> None:
        for instance in list(self.alive.values()):
            self.stop(instance, at)

    def _apply_step(self, instance: EmulatedInstance) -> None:
        step = instance.steps.pop(0)
        event = step.changes.get("event")
        if event is None:
            self._change(instance, step.changes, step.at)
        elif event == "resume":
            self.remove_rival(instance, step.at)
        else:
            self.outbid(instance, step.at, as_stop=event == "outbid_as_stop")

    # --- inside ----------------------------------------------------------------------------------------------

    def _start(self, instance: EmulatedInstance, now: float, kind: str | None) -> None:
        instance.steps = startup_steps(now, instance.delays, instance.image)
        if kind is not None:
            self.inject_fault(instance, kind, 0.0)
        instance.record_snapshot(now)
        self._meter(instance, now)

    def _resume(self, instance: EmulatedInstance, now: float) -> None:
        if instance.expired_at is not None:
            return
        instance.queued, instance.rival_usd_hour = False, None
        self.market.hold(instance.machine, instance.gpus, instance.id)
        running = {"intended_status": "running", "cur_state": "running", "next_state": "running"}
        self._change(instance, running | {"actual_status": "loading", "status_msg": None, "has_ssh": True}, now)
        restart_delays = Delays(running_s=instance.delays.start_s, measured_s=instance.delays.measured_s)
        instance.steps = running_steps(now, restart_delays, instance.image)

    def _can_run(self, instance: EmulatedInstance) -> bool:
        if instance.expired_at is not None or (instance.rival_usd_hour or 0.0) > instance.base_usd_hour:
            return False
        return all(instance.machine.holders.get(gpu) in (None, instance.id) for gpu in instance.gpus)

    def _change(self, instance: EmulatedInstance, changes: dict[str, Any], at: float) -> None:
        was_running = instance.actual_status == "running"
        for name, value in changes.items():
            setattr(instance, name, value)
        if instance.actual_status != "running":
            instance.running_since, instance.measured = None, False
        elif not was_running:
            instance.running_since = at
        if self.machines is not None:
            self.machines.sync(instance)
        instance.record_snapshot(at)
        self._meter(instance, at)

    def _meter(self, instance: EmulatedInstance, at: float) -> None:
        factor = Decimal(repr(self.charge_factor))
        gpu, disk = Decimal(repr(instance.gpu_usd_hour)), Decimal(repr(instance.disk_usd_hour))
        self.ledger.meter(instance.id).set_rates(at, gpu * factor, disk * factor)

    def _end(self, instance: EmulatedInstance, kind: str, now: float) -> None:
        del self.alive[instance.id]
        if self.machines is not None:
            self.machines.halt(instance.id)
        self.ended[instance.id] = instance
        instance.steps, instance.ended_at = [], now
        self.ledger.close(instance.id, now)
        self._record(kind, instance, now)
        self.market.release(instance.machine, instance.id)

    def _record(self, kind: str, instance: EmulatedInstance, now: float) -> None:
        price = to_microusd(instance.base_usd_hour + instance.disk_usd_hour)
        machine = instance.machine.id
        label, is_bid = instance.label, instance.is_bid
        self.ledger.append(LedgerEntry(now, kind, instance.id, instance.offer_id, machine, label, price, is_bid))


def stopped_states() -> dict[str, Any]:
    """Return the three statuses that all say `stopped` after a stop, whatever its cause."""
    return {"intended_status": "stopped", "cur_state": "stopped", "next_state": "stopped"}
