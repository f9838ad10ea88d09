"""A marketplace on loopback that speaks vast.ai's protocol, for the demo, tests and benchmarks.

It follows the protocol's documents and recorded answers, not gpuwatch's own client: the tests compare two independent
readings of the protocol. docs/emulator.md describes it.
"""

from gpuwatch.emulator.clock import ManualClock
from gpuwatch.emulator.instances.lifecycles import Delays
from gpuwatch.emulator.server import Marketplace

__all__ = ["Delays", "ManualClock", "Marketplace"]
