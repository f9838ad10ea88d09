"""Emulators of the other providers, one module each, built from their documents and recorded answers.

Each is a `Stage`: a server on loopback with a small market, instances, and faults that can be asked for.
"""
