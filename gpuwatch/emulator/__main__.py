"""Serve a marketplace on loopback until interrupted. The first line printed is its URL."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Sequence
from typing import Any

from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.server import Marketplace


def main(words: Sequence[str] | None = None, program: str = "python -m gpuwatch.emulator") -> int:
    """Read the command line, and serve.

    Args:
        words: None: those of this process.
        program: how the help names this command.
    """
    chosen = _options(words, program)
    return serve(Marketplace(tick_every_s=chosen.pop("tick_every"), **chosen))


def serve(server: Marketplace | ProviderServer) -> int:
    """Serve until SIGINT or SIGTERM."""
    ending = (signal.SIGINT, signal.SIGTERM)
    for name in ending:
        signal.signal(name, lambda *_: None)  # a shell makes its background jobs ignore SIGINT
    # Waited for, not handled: an Event that two signals set at once waits for itself for ever.
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with server, contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        signal.sigwait(ending)
    return 0


def _options(words: Sequence[str] | None, program: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free port")
    parser.add_argument("--seed", type=int, default=7, help="random seed of the market (default: 7)")
    parser.add_argument("--size", type=int, default=200, help="offers on the market (default: 200)")
    parser.add_argument("--key", default="demo-key", help="the API key that it accepts (default: demo-key)")
    parser.add_argument("--control", action="store_true", help="answer under /control, too")
    parser.add_argument("--tick-every", type=float, metavar="SECONDS", help="change the market at this interval")
    parser.add_argument("--rows-per-day", type=int, metavar="ROWS", help="enforce a daily row quota")
    parser.add_argument("--intervals", action="store_true", help="enforce the minimum interval of each endpoint")
    parser.add_argument("--gzip", action="store_true", help="compress large answers for clients that accept it")
    return vars(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
