"""What a test, the demo or /control can do to the market, instances, contracts and the account."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from functools import partial
from typing import Any

from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.fault_rules import FaultRules
from gpuwatch.emulator.instances.contracts import instance_row
from gpuwatch.emulator.instances.emulated_instance import EmulatedInstance
from gpuwatch.emulator.instances.fleet import Fleet
from gpuwatch.emulator.instances.increases import Proposal
from gpuwatch.emulator.instances.ledger import Ledger, TrafficCharge
from gpuwatch.emulator.market.emulated_market import OTHER_RENTER
from gpuwatch.emulator.request import EmulatorRequest, LoggedRequest, logged_request
from gpuwatch.emulator.simulation import MarketplaceOptions, Simulation

REQUEST_LOG_SIZE = 20_000
# Options that can be changed while the marketplace is open; the others are read once.
CHANGEABLE = frozenset({
    "list_lag_s", "list_omits_s", "omits_single", "page_cap", "gone_shape", "bad_key_status", "new_account",
    "charge_factor", "charge_decimals", "charges_lag_s", "charges_today", "ssh_at",
})  # fmt: skip


def set_load(_: Fleet, one: EmulatedInstance, __: float, *, gpu_util: float) -> None:
    """Set its GPU utilisation, in percent."""
    one.gpu_util, one.trace = float(gpu_util), []


def stop_by_host(fleet: Fleet, one: EmulatedInstance, now: float) -> None:
    """Stop it like the renter, but with its GPUs taken: a start is queued until `give_back`."""
    fleet.stop(one, now)
    fleet.market.hold(one.machine, one.gpus, OTHER_RENTER)


def cancel_steps(_: Fleet, one: EmulatedInstance, __: float) -> None:
    """Keep its state for ever."""
    one.steps = []


def override_row(_: Fleet, one: EmulatedInstance, __: float, **fields: Any) -> None:
    """Make its row differ from the rented offer."""
    one.overrides |= fields


def set_ssh_address(_: Fleet, one: EmulatedInstance, __: float, *, host: str, port: int) -> None:
    """Set the address of its SSH server, proxy and direct, to one that a test started."""
    one.ssh = (str(host), int(port))


EVENTS: dict[str, Callable[..., None]] = {
    "outbid": partial(Fleet.outbid, as_stop=False),
    "outbid_as_stop": partial(Fleet.outbid, as_stop=True),
    "resume": Fleet.remove_rival,
    "load": set_load,
    "stopped_by_owner": Fleet.stop,
    "stopped_by_host": stop_by_host,
    "stuck": cancel_steps,
    "recovers": Fleet.recover,
    "differs": override_row,
    "ssh": set_ssh_address,
}


class MarketControls:
    """Everything that a test, the demo or /control does to a marketplace behind its protocol.

    Args:
        options: the fields of `simulation.MarketplaceOptions`.
    """

    def __init__(self, clock: Clock, **options: Any) -> None:
        self.clock = clock
        self.options = MarketplaceOptions(**options)
        self.faults = FaultRules(self.options.seed)
        self._simulation = Simulation(self.options, clock)
        self._log: deque[EmulatorRequest] = deque(maxlen=REQUEST_LOG_SIZE)

    # --- the market ------------------------------------------------------------------------------------------

    def publish(self, *, gpu: str = "H100 SXM", count: int = 1, usd_hour: float = 2.0, **fields: Any) -> int:
        """List a new machine.

        Args:
            gpu: the name in the wire format; unknown names are accepted; "none": a machine without GPUs.
            count: GPUs of the returned offer.
            usd_hour: for the GPUs of the whole offer; the disk is free unless `storage_cost` is given.
            fields: `min_bid`, `machine_id`, `host_id`, `verified`, `country`, `machine_gpus` and `slices` (a machine
                sold in overlapping parts), `pinned` (False lets ticks move it), `defect` (one of
                `lifecycles.LIFECYCLE_FAULTS`, for every instance on it), and any field of an offer.

        Returns:
            The offer's id.

        Raises:
            TypeError: offers have no such field.
        """
        with self._simulation.lock:
            return self._simulation.market.publish(gpu, count, usd_hour, fields)

    def reprice(self, offer_id: int, usd_hour: float | None = None, min_bid: float | None = None) -> None:
        """Change the price or the minimum bid of an offer, USD per hour for the whole of it."""
        with self._simulation.lock:
            self._simulation.market.reprice(offer_id, usd_hour, min_bid)

    def withdraw(self, offer_id: int) -> None:
        """Remove one offer; the other slices of its machine stay."""
        with self._simulation.lock:
            self._simulation.market.withdraw(offer_id)

    def take(self, offer_id: int) -> None:
        """Let somebody else rent an offer: it vanishes with all that overlap it."""
        with self._simulation.lock:
            market = self._simulation.market
            market.take(market.listings[offer_id], OTHER_RENTER)

    def occupy(self, instance_id: int) -> None:
        """Let somebody else rent the GPUs of a stopped instance: its next start is queued."""
        with self._simulation.lock:
            one = self._instance(instance_id)
            self._simulation.market.hold(one.machine, one.gpus, OTHER_RENTER)

    def give_back(self, machine_id: int) -> None:
        """End the other rental: the machine's GPUs are free again, and queued starts begin."""
        with self._simulation.lock:
            self._simulation.market.release(self._simulation.market.machines[machine_id], OTHER_RENTER)
            self._simulation.settle()

    def tick(self) -> None:
        """Let the market move by one step."""
        with self._simulation.lock:
            self._simulation.market.tick()

    def locked(self) -> AbstractContextManager[bool]:
        """Hold the lock: changes inside become visible at once."""
        return self._simulation.lock

    def warm(self) -> None:
        """Encode recently requested large answers again, so that the next request finds them ready."""
        with self._simulation.lock:
            self._simulation.search.warm(self.clock())

    def offers(self) -> list[dict[str, Any]]:
        """Return all listed offers like an on-demand search with 8 GB."""
        with self._simulation.lock:
            now = self.clock()
            result = self._simulation.search.find({}, now)
            return [listing.row(result.query.view, now) for listing in result.listings]

    # --- instances -------------------------------------------------------------------------------------------

    def instances(self) -> list[dict[str, Any]]:
        """Return the living instances as the API shows them."""
        with self._locked_now() as now:
            return [instance_row(one, now) for one in self._simulation.fleet.alive.values()]

    def ordered(self, instance_id: int) -> dict[str, Any]:
        """Return the body of the create of an instance, including secrets; no log contains it."""
        return self._simulation.ledger.order(instance_id)

    def change(self, **options: Any) -> None:
        """Change options while the marketplace is open.

        Raises:
            TypeError: no such option, or one that is read only once.
        """
        unknown = sorted(set(options) - CHANGEABLE)
        if unknown:
            raise TypeError(f"{', '.join(unknown)} cannot be changed; {', '.join(sorted(CHANGEABLE))} can")
        with self._locked_now() as now:
            for name, value in options.items():
                setattr(self._simulation.options, name, value)
            self._simulation.fleet.charge(self._simulation.options.charge_factor, now)
            self._simulation.fleet.ssh_at = self._simulation.options.ssh_at

    # --- an instance -----------------------------------------------------------------------------------------

    def befall(self, instance_id: int, what: str, **changes: Any) -> None:
        """Trigger an event on an instance.

        Args:
            instance_id: a living instance.
            what: one of `EVENTS`: `outbid` (documented form), `outbid_as_stop` (as seen live), `resume` (rival leaves),
                `load` (with `gpu_util=…`), `stopped_by_host`, `stopped_by_owner`, `stuck` (cancels everything that was
                planned), `recovers` (an absent host is back), `differs` (its row shows the fields in `changes`), `ssh`
                (with `host=…`, `port=…`: the real address of its ssh server); or the `actual_status` that it gets:
                `offline`, `exited`, `unknown`, `frozen`, `stopped`.
            changes: for `outbid`: `rival_usd_hour`, `resume_after_s`; else further fields: `status_msg`, `cur_state`,
                `next_state`, `intended_status`, `gpu_util`.
        """
        with self._locked_now() as now:
            one = self._instance(instance_id)
            handler = EVENTS.get(what)
            if handler is not None:
                handler(self._simulation.fleet, one, now, **changes)
            else:
                self._simulation.fleet.befall(one, {"actual_status": what, **changes}, now)

    def outbid(
        self, instance_id: int, *, min_bid: float, as_stop: bool = False, resume_after_s: float | None = None
    ) -> None:
        """Outbid a spot instance; it resumes when its bid is raised to at least the new one.

        Args:
            instance_id: a living spot instance.
            min_bid: the new minimum bid, USD per hour for the whole offer; shown in the instance's row.
            as_stop: False: the documented form; True: the one seen live, where every status says `stopped`.
            resume_after_s: when the rival leaves; None: it does not leave by itself.

        Raises:
            ValueError: it is not a spot instance, or already bids that much.
        """
        with self._simulation.lock:
            one = self._instance(instance_id)
            if not one.is_bid or one.base_usd_hour >= min_bid:
                raise ValueError(f"{min_bid} outbids no instance that is rented at {one.base_usd_hour}")
            rival = {"rival_usd_hour": min_bid, "resume_after_s": resume_after_s}
            self.befall(instance_id, "outbid_as_stop" if as_stop else "outbid", **rival)

    def utilise(self, instance_id: int, trace: Iterable[tuple[float, float | None]]) -> None:
        """Set the course of an instance's GPU use.

        Args:
            instance_id: a living instance.
            trace: (seconds from now, percentage from then on); None is "not measured". An instance that does not run,
                or has run for less than `Delays.measured_s`, shows null.
        """
        with self._locked_now() as now:
            self._instance(instance_id).trace = sorted(
                ((now + float(after_s), percent) for after_s, percent in trace), key=lambda entry: entry[0]
            )

    # --- a contract ------------------------------------------------------------------------------------------

    def ends(self, instance_id: int, after_s: float) -> None:
        """Let a contract end this many seconds from now: its instance is then stopped, and deleted 48 hours later."""
        with self._locked_now() as now:
            self._simulation.fleet.set_end(self._instance(instance_id), now + after_s, now)

    def propose_increase(self, instance_id: int, *, gpu_usd_hour: float, **terms: Any) -> int:
        """Let the host announce another price for a running contract.

        Args:
            instance_id: a living instance.
            gpu_usd_hour: the new price of all its GPUs, USD per hour.
            terms: the other fields of `increases.Proposal`: `effective_after_s`, `extends_s`, `storage_cost`, `fees`.

        Returns:
            The number with which it is accepted or rejected.
        """
        with self._locked_now() as now:
            proposal = Proposal(gpu_usd_hour, **terms)
            return self._simulation.fleet.announce(self._instance(instance_id), proposal, now)

    def increase_answers(self) -> dict[int, str]:
        """Return the results of announcements: `accepted`, `rejected`, `lapsed`, `withdrawn`, `pending`."""
        with self._locked_now():
            found = self._simulation.fleet.increases
            return dict.fromkeys(found.pending, "pending") | found.answers

    def raise_price(self, instance_id: int, factor: float) -> None:
        """Multiply the price of a running contract at once, including the disk, without an announcement."""
        with self._locked_now() as now:
            one = self._instance(instance_id)
            self._simulation.fleet.change_rates(one, one.base_usd_hour * factor, one.row["storage_cost"] * factor, now)

    # --- money -----------------------------------------------------------------------------------------------

    def transfer(self, instance_id: int, *, down_gb: float = 0.0, up_gb: float = 0.0) -> None:
        """Let an instance move data, at its offer's prices per GB."""
        with self._locked_now() as now:
            row = self._instance(instance_id).row
            factor = Decimal(repr(self._simulation.fleet.charge_factor))
            for kind, gb, cost in (("bwd", down_gb, row["inet_down_cost"]), ("bwu", up_gb, row["inet_up_cost"])):
                if gb:
                    usd_gb = Decimal(repr(cost)) * factor
                    self._simulation.ledger.meter(instance_id).add(TrafficCharge(now, kind, Decimal(repr(gb)), usd_gb))

    @property
    def credit_usd(self) -> float:
        """The account's credit; setting it adds or removes the difference."""
        with self._locked_now() as now:
            return self._simulation.fleet.credit(now)

    @credit_usd.setter
    def credit_usd(self, usd: float) -> None:
        with self._locked_now() as now:
            self._simulation.fleet.credit_usd = usd + float(self._simulation.ledger.spent_usd(now))

    # --- audits ----------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """What really happened: creates, destroys, alive, bills."""
        return self._simulation.ledger

    @property
    def requests(self) -> list[LoggedRequest]:
        """The last 20,000 requests, oldest first, without secrets; excludes those to /control."""
        return [logged_request(request) for request in list(self._log)]

    @contextmanager
    def _locked_now(self) -> Iterator[float]:
        """Hold the lock, and yield the time up to which everything has happened."""
        with self._simulation.lock:
            yield self._simulation.settle()

    def _instance(self, instance_id: int) -> EmulatedInstance:
        return self._simulation.fleet.alive[instance_id]
