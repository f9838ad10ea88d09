"""What all provider adapters share: declarations, the HTTP client, validation of untrusted data, post-processing.

An adapter, built-in or plugin, needs only this package and the ports from gpuwatch.
"""

from __future__ import annotations

from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, Tools, web_address

__all__ = ["Adapter", "Billing", "OptionSpec", "ProviderInfo", "Tools", "web_address"]
