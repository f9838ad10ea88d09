"""Puts the sides of AWS together: they share the session, the pace and the list prices."""

from __future__ import annotations

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, ProviderInfo, Tools
from gpuwatch.providers.aws.catalog_cache import CatalogCache
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.aws.launcher import AwsLauncher
from gpuwatch.providers.aws.market import AwsMarket
from gpuwatch.providers.aws.public_market import PublicMarket


def assemble(info: ProviderInfo, settings: ProviderSettings, tools: Tools) -> Adapter:
    """One account, both sides; or the public price lists alone."""
    own_endpoints = settings.base_url.rstrip("/") == info.base_url
    if settings.options.get("source") == "public":
        return Adapter(name=info.name, info=info, market=PublicMarket(settings, tools, own_endpoints))
    account = AwsClient(settings, tools, own_endpoints)
    shelf = CatalogCache(account)
    launcher = AwsLauncher(account, shelf, settings)
    return Adapter(name=info.name, info=info, market=AwsMarket(account, shelf), launcher=launcher)
