"""Puts the sides of vast.ai together: they share the address, the key and the pace."""

from __future__ import annotations

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, ProviderInfo, Tools
from gpuwatch.providers.vastai.client import VastClient
from gpuwatch.providers.vastai.launcher import VastLauncher
from gpuwatch.providers.vastai.market import VastMarket


def assemble(info: ProviderInfo, settings: ProviderSettings, tools: Tools) -> Adapter:
    """One account, both sides."""
    account = VastClient(settings, tools)
    return Adapter(name=info.name, info=info, market=VastMarket(account), launcher=VastLauncher(account))
