"""Puts the sides of AWS together: they share the session, the pace and the list prices."""

from __future__ import annotations

from gpuwatch.adapting import Adapter, ProviderInfo, Tools
from gpuwatch.ports import ProviderSettings
from gpuwatch.providers.aws.asking import Account
from gpuwatch.providers.aws.orders import AwsLauncher
from gpuwatch.providers.aws.search import AwsMarket
from gpuwatch.providers.aws.shelf import Shelf


def assemble(info: ProviderInfo, settings: ProviderSettings, tools: Tools) -> Adapter:
    """One account, both sides."""
    account = Account(settings, tools, own_endpoints=settings.base_url.rstrip("/") == info.base_url)
    shelf = Shelf(account)
    return Adapter(
        name=info.name, info=info, market=AwsMarket(account, shelf), launcher=AwsLauncher(account, shelf, settings)
    )
