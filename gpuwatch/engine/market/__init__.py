"""The market: searches, health of providers, prices on sale."""
