"""`python -m tests.clouds PROVIDER`: serve the emulator of one provider until interrupted; prints its URL."""

from __future__ import annotations

import argparse
import sys

from gpuwatch.emulator.__main__ import serve
from tests import clouds


def main() -> int:
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.clouds", description=__doc__)
    parser.add_argument("provider", choices=clouds.names())
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free port")
    parser.add_argument("--key", default="demo-key", help="the API key that it accepts (default: demo-key)")
    chosen = parser.parse_args()
    return serve(clouds.server_of(chosen.provider)().at(chosen.port, chosen.key))


if __name__ == "__main__":
    sys.exit(main())
