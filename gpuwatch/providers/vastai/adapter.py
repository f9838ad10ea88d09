"""Puts the sides of vast.ai together: they share the address, the key and the pace."""

from __future__ import annotations

from gpuwatch.ports import ProviderSettings
from gpuwatch.providers import Adapter, ProviderInfo, Tools
from gpuwatch.providers.vastai.asking import Account
from gpuwatch.providers.vastai.orders import VastLauncher
from gpuwatch.providers.vastai.search import VastMarket


def assemble(info: ProviderInfo, settings: ProviderSettings, tools: Tools) -> Adapter:
    """One account, both sides."""
    account = Account(settings, tools)
    return Adapter(name=info.name, info=info, market=VastMarket(account), launcher=VastLauncher(account))
