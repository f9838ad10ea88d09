"""Use cases of the market: offers, GPUs, providers, machines."""
