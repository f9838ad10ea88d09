"""Serve a marketplace on loopback until interrupted. The first line printed is its URL."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from typing import Any, NamedTuple

from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.server import Marketplace


class Flag(NamedTuple):
    """One option of the command line; `gpuwatch providers emulator` has the same."""

    name: str
    kind: type
    default: Any
    about: str


FLAGS = (
    Flag("port", int, 0, "Port to serve on; 0 takes a free one."),
    Flag("seed", int, 7, "Random seed of the market."),
    Flag("size", int, 200, "Offers on the market."),
    Flag("key", str, "demo-key", "API key to accept."),
    Flag("control", bool, False, "Answer under /control, too."),
    Flag("tick-every", float, None, "Seconds between two changes of the market."),
    Flag("rows-per-day", int, None, "Daily row quota to enforce."),
    Flag("intervals", bool, False, "Enforce the minimum interval of each endpoint."),
    Flag("gzip", bool, False, "Compress large answers for clients that accept it."),
)


def main() -> int:
    """Parse the command line, and serve."""
    parser = argparse.ArgumentParser(prog="python -m gpuwatch.emulator", description=__doc__)
    for flag in FLAGS:
        if flag.kind is bool:
            parser.add_argument(f"--{flag.name}", action="store_true", help=flag.about)
        else:
            parser.add_argument(f"--{flag.name}", type=flag.kind, default=flag.default, help=flag.about)
    return serve_market(**vars(parser.parse_args()))


def serve_market(tick_every: float | None, **options: Any) -> int:
    """Serve vast.ai's emulator with the values of `FLAGS`."""
    return serve(Marketplace(tick_every_s=tick_every, **options))


def serve(server: Marketplace | ProviderServer) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code, 1 if it cannot listen at its port."""
    ending = (signal.SIGINT, signal.SIGTERM)
    for name in ending:
        signal.signal(name, lambda *_: None)  # a shell makes its background jobs ignore SIGINT
    # Wait for the signal instead of handling it: two signals that set an Event at once can block it for ever.
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with contextlib.ExitStack() as opened, contextlib.suppress(BrokenPipeError):
        try:
            opened.enter_context(server)
        except (OSError, OverflowError) as error:  # in use, reserved for others, or no port at all
            reason = getattr(error, "strerror", None) or f"{error}"
            sys.stderr.write(f"gpuwatch: cannot listen at 127.0.0.1:{server.port}: {reason}; set another --port\n")
            return 1
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        signal.sigwait(ending)
    return 0


if __name__ == "__main__":
    sys.exit(main())
