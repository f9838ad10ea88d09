"""What all provider adapters share: declarations, the HTTP client, validation of untrusted data, post-processing.

An adapter, built-in or a plugin's, needs this package and the ports, and nothing else of gpuwatch.
"""

from __future__ import annotations

from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, Tools, web_address

__all__ = ["Adapter", "Billing", "OptionSpec", "ProviderInfo", "Tools", "web_address"]
