"""Puts the sides of AWS together: they share the session, the pace and the list prices."""

from __future__ import annotations

from gpuwatch.adapting import Adapter, ProviderInfo, Tools
from gpuwatch.ports import ProviderSettings
from gpuwatch.providers.aws.asking import Account
from gpuwatch.providers.aws.orders import AwsLauncher
from gpuwatch.providers.aws.public import PublicMarket
from gpuwatch.providers.aws.search import AwsMarket
from gpuwatch.providers.aws.shelf import Shelf


def assemble(info: ProviderInfo, settings: ProviderSettings, tools: Tools) -> Adapter:
    """One account, both sides; or the public price lists alone."""
    own_endpoints = settings.base_url.rstrip("/") == info.base_url
    if settings.options.get("source") == "public":
        return Adapter(name=info.name, info=info, market=PublicMarket(settings, tools, own_endpoints))
    account = Account(settings, tools, own_endpoints)
    shelf = Shelf(account)
    launcher = AwsLauncher(account, shelf, settings)
    return Adapter(name=info.name, info=info, market=AwsMarket(account, shelf), launcher=launcher)
