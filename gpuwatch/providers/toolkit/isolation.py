"""Isolates a plugin's adapter: an error in it affects only that provider."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any, TypeVar

from gpuwatch.errors import GpuwatchError, OutcomeUnknown, PayloadChanged, ProviderError
from gpuwatch.ports import (
    AccountLookup,
    Answer,
    Created,
    DiskKeeper,
    EndMover,
    Instance,
    InstanceLookup,
    Launcher,
    Market,
    Order,
    PriceIncrease,
    ProviderCharge,
    Query,
)
from gpuwatch.ports.declarations import Adapter, ProviderInfo

T = TypeVar("T")
log = logging.getLogger("gpuwatch.plugins")


def isolate(adapter: Adapter) -> Adapter:
    """Wrap an adapter; whatever it raises becomes a ProviderError or an OrderError."""
    name = adapter.name
    return Adapter(
        name=name,
        info=adapter.info,
        market=_IsolatedMarket(name, adapter.market),
        launcher=adapter.launcher and _isolated_launcher(name, adapter.launcher),
    )


def unusable_adapter(info: ProviderInfo, reason: str) -> Adapter:
    """Replaces an adapter that cannot be built: every request fails with the reason."""
    return Adapter(name=info.name, info=info, market=_UnusableMarket(info.name, reason))


class _UnusableMarket:
    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self._reason = reason

    def search(self, query: Query) -> Answer:
        raise ProviderError(f"{self.name}: its plugin cannot be used: {self._reason}")


class _Isolated:
    def __init__(self, name: str) -> None:
        self.name = name

    def _read(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except GpuwatchError:
            raise
        except Exception as error:
            log.debug("%s", self.name, exc_info=True)
            raise PayloadChanged(f"{self.name}: {type(error).__name__} in its plugin") from error

    def _change(self, call: Callable[[], T]) -> T:
        """Call it; an unexpected error leaves the outcome unknown."""
        try:
            return call()
        except GpuwatchError:
            raise
        except Exception as error:
            log.debug("%s", self.name, exc_info=True)
            raise OutcomeUnknown(f"{self.name}: {type(error).__name__} in its plugin") from error


class _IsolatedMarket(_Isolated):
    def __init__(self, name: str, inner: Market) -> None:
        super().__init__(name)
        self._inner = inner

    def search(self, query: Query) -> Answer:
        return self._read(lambda: self._inner.search(query))


class _IsolatedLauncher(_Isolated):
    def __init__(self, name: str, inner: Launcher) -> None:
        super().__init__(name)
        self._inner = inner

    def create(self, order: Order) -> Created:
        return self._change(lambda: self._inner.create(order))

    def list_instances(self) -> Sequence[Instance]:
        return self._read(lambda: list(self._inner.list_instances()))

    def destroy(self, instance_id: str) -> None:
        return self._change(lambda: self._inner.destroy(instance_id))

    def credit_usd(self) -> float | None:
        return self._read(self._inner.credit_usd)

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        return self._change(lambda: self._inner.change_bid(instance_id, bid_usd_hour))

    def price_increases(self) -> Sequence[PriceIncrease]:
        return self._read(lambda: list(self._inner.price_increases()))

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        return self._change(lambda: self._inner.answer_increase(increase_id, accept))

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        return self._read(lambda: self._inner.charges(since, until))


class _InstanceLookup(_Isolated):
    _inner: Any  # a launcher that has this method

    def get(self, instance_id: str) -> Instance | None:
        lookup: InstanceLookup = self._inner
        return self._read(lambda: lookup.get(instance_id))


class _DiskKeeper(_Isolated):
    _inner: Any  # a launcher that has these methods

    def stop_instance(self, instance_id: str) -> None:
        keeper: DiskKeeper = self._inner
        return self._change(lambda: keeper.stop_instance(instance_id))

    def start_instance(self, instance_id: str) -> bool:
        keeper: DiskKeeper = self._inner
        return self._change(lambda: keeper.start_instance(instance_id))


class _EndMover(_Isolated):
    _inner: Any  # a launcher that has this method

    def move_end(self, instance_id: str, at: datetime) -> None:
        mover: EndMover = self._inner
        return self._change(lambda: mover.move_end(instance_id, at))


class _AccountLookup(_Isolated):
    _inner: Any  # a launcher that has this method

    def account_id(self) -> str | None:
        lookup: AccountLookup = self._inner
        return self._read(lookup.account_id)


_CAPABILITIES = (
    (InstanceLookup, _InstanceLookup),
    (AccountLookup, _AccountLookup),
    (DiskKeeper, _DiskKeeper),
    (EndMover, _EndMover),
)


def _isolated_launcher(name: str, inner: Launcher) -> _IsolatedLauncher:
    """Return the wrapper: it must not claim capabilities that the inner launcher lacks."""
    return _launcher_class(*(isinstance(inner, port) for port, _ in _CAPABILITIES))(name, inner)


@cache
def _launcher_class(*has: bool) -> type[_IsolatedLauncher]:
    bases = [base for (_, base), is_able in zip(_CAPABILITIES, has, strict=True) if is_able]
    return type("_IsolatedLauncher", (*bases, _IsolatedLauncher), {})
