"""The cloud as a provider plugin: a key always belongs to the same account, and an account may have several keys."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpuwatch.domain.market.money import Commission
from gpuwatch.ports import Answer, Created, Instance, Order, ProviderSettings, Query
from gpuwatch.ports.declarations import Adapter, ProviderInfo, Tools
from gpuwatch.ports.market import Completeness
from gpuwatch.providers.toolkit.basic_launcher import BasicLauncher
from tests.plugins.packages import install
from tests.soak.cloud import NAME, Cloud, launch_id_in

INFO = ProviderInfo(
    name=NAME, title="Soak", base_url="http://127.0.0.1:9", commission=Commission("0.20"), launches=True,
    spots=(False, True), search_interval_s=0.0, poll_every_s=5.0,
)  # fmt: skip
_CLOUD: list[Cloud] = []  # the one of this process's world


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """The launcher of the key's account: "ACCOUNT.NUMBER"."""
    (cloud,) = _CLOUD
    account = (settings.api_key or "").partition(".")[0]
    launcher = (AskableAccount if cloud.has_lookup else Account)(cloud, account)
    return Adapter(name=NAME, info=INFO, market=Shop(cloud, tools), launcher=launcher)


class Shop:
    """The current offers."""

    name = NAME

    def __init__(self, cloud: Cloud, tools: Tools) -> None:
        self._cloud, self._tools = cloud, tools

    def search(self, query: Query) -> Answer:
        now = self._tools.now()
        found = [
            msgspec.structs.replace(one, observed_at=now)
            for one in self._cloud.on_offer()
            if one.spot == query.spot and (not query.gpus or one.gpu in query.gpus)
        ]
        return Answer(provider=NAME, observed_at=now, offers=found, completeness=Completeness.COMPLETE, rows=len(found))


class Account(BasicLauncher):
    """The permissions of one key."""

    name = NAME

    def __init__(self, cloud: Cloud, account: str) -> None:
        self._cloud, self._account = cloud, account

    def create(self, order: Order) -> Created:
        if self._account != "main":
            self._cloud.ordered_with_another_key.add(launch_id_in(order.label))
        return self._cloud.create(self._account, order)

    def list_instances(self) -> Sequence[Instance]:
        return self._cloud.listed(self._account)

    def destroy(self, instance_id: str) -> None:
        self._cloud.destroy(self._account, instance_id)

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        self._cloud.bid(self._account, instance_id, bid_usd_hour)


class AskableAccount(Account):
    """One whose API also supports lookups, and names its account."""

    def get(self, instance_id: str) -> Instance | None:
        return self._cloud.looked_up(self._account, instance_id)

    def account_id(self) -> str:
        return f"account-{self._account}"


@contextmanager
def provided(cloud: Cloud) -> Iterator[None]:
    """Register this cloud as the provider "soakcloud" inside the block."""
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder), "soakcloud", {}, {"gpuwatch.providers": {NAME: "tests.soak.provider"}})
        sys.path.append(folder)
        _CLOUD.append(cloud)
        try:
            yield
        finally:
            _CLOUD.clear()
            sys.path.remove(folder)
