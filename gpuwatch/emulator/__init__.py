"""A marketplace on loopback that speaks vast.ai's protocol, for the demo, tests and benchmarks.

It is built from the protocol's documents and recorded answers, not from gpuwatch's own client: that the two understand
each other proves something. docs/emulator.md tells what it can do.
"""

from gpuwatch.emulator.clock import ManualClock
from gpuwatch.emulator.lifecycles import Delays
from gpuwatch.emulator.server import Marketplace

__all__ = ["Delays", "ManualClock", "Marketplace"]
