"""The tests. This file makes them a package of their own, because a wheel that we depend on also ships `tests`."""
