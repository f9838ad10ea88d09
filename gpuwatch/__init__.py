"""gpuwatch watches GPU marketplaces and alerts, or rents, when an offer is at or under your price."""

__version__ = "0.2.0"
