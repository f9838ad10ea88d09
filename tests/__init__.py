"""The tests. This file makes them a package of their own, for a wheel that we depend on ships a `tests`, too."""
