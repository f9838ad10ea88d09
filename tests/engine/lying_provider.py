"""A renting provider that can lie: lost answers, late instances, lists that lag, fail or stay empty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from gpuwatch.errors import OrderError, OutcomeUnknown, ProviderError
from gpuwatch.ports import Created, Instance, InstanceState, Order, PriceIncrease, ProviderCharge
from tests.builders import changed


class LyingProvider:
    """Records what was really created, apart from its answers."""

    name = "vastai"

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.alive: dict[str, Instance] = {}
        self.made: list[tuple[str, str]] = []  # (label, instance id): every instance ever created
        self.destroys: list[str] = []
        self.on_create: list[Exception | str] = []  # an error, "lost": created, "stopped": created, not starting
        self.on_list: list[Exception | str] = []  # an error, "empty"
        self.destroy_works = True
        self.destroy_error: Exception | None = None
        self.destroy_lies = False  # reports success, but the instance stays
        self.price_usd_hour: float | None = None
        self.balance_usd: float | None = None  # None: it does not answer
        self.spot_is: Callable[[Order], bool] = lambda order: order.bid_usd_hour is not None

    def create(self, order: Order) -> Created:
        self.orders.append(order)
        how = self.on_create.pop(0) if self.on_create else ""
        if isinstance(how, Exception):
            raise how
        instance_id = str(9000 + len(self.made))
        self.made.append((order.label, instance_id))
        self.alive[instance_id] = Instance(
            instance_id=instance_id,
            label=order.label,
            state=InstanceState.STOPPED if how == "stopped" else InstanceState.STARTING,
            status="loading",
            spot=self.spot_is(order),
            listed_usd_hour=self.price_usd_hour,
        )
        if how == "lost":
            raise OutcomeUnknown("vastai: no answer within 60 s")
        return Created(instance_id=instance_id, starting=how != "stopped")

    def list_instances(self) -> Sequence[Instance]:
        how = self.on_list.pop(0) if self.on_list else ""
        if isinstance(how, Exception):
            raise how
        return [] if how == "empty" else list(self.alive.values())

    def destroy(self, instance_id: str) -> None:
        self.destroys.append(instance_id)
        if not self.destroy_works:
            raise OrderError("vastai: 500")
        if self.destroy_error is not None:
            raise self.destroy_error
        if self.destroy_lies:
            return
        self.alive.pop(instance_id, None)

    def credit_usd(self) -> float | None:
        if self.balance_usd is None:
            raise ProviderError("not asked")
        return self.balance_usd

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        raise OrderError("this marketplace knows no bids")

    def price_increases(self) -> Sequence[PriceIncrease]:
        return []

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        raise OrderError("this marketplace knows no price increases")

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        return None

    # --- events -------------------------------------------------------------------------------------------------------

    def turns(self, state: InstanceState, status: str = "", **changes: object) -> None:
        """Set the state of every instance."""
        for instance_id, instance in self.alive.items():
            self.alive[instance_id] = changed(instance, state=state, status=status or state.value, **changes)

    def foreign(self, instance_id: str = "1", label: str | None = None) -> None:
        """Add a foreign instance on the same account."""
        self.alive[instance_id] = Instance(
            instance_id=instance_id, label=label, state=InstanceState.RUNNING, status="running"
        )


class AskableProvider(LyingProvider):
    """One that also supports lookups, like vast.ai."""

    def __init__(self) -> None:
        super().__init__()
        self.omitted: set[str] = set()  # ids that no list shows
        self.stale: list[Instance] = []  # additional instances in every list
        self.ended: dict[str, Instance] = {}  # shown by a lookup alone, with the words of their end
        self.asked: list[str] = []
        self.on_get: list[Exception] = []

    def list_instances(self) -> Sequence[Instance]:
        return [
            *self.stale,
            *(instance for instance in super().list_instances() if instance.instance_id not in self.omitted),
        ]

    def get(self, instance_id: str) -> Instance | None:
        self.asked.append(instance_id)
        if self.on_get:
            raise self.on_get.pop(0)
        return self.alive.get(instance_id) or self.ended.get(instance_id)

    def ends(self, instance_id: str, status: str, **changes: object) -> None:
        """End an instance by itself; the provider states how."""
        gone = self.alive.pop(instance_id)
        self.ended[instance_id] = changed(gone, state=InstanceState.ENDED, status=status, **changes)
