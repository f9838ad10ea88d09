"""`python -m gpuwatch.emulator`: serve a marketplace until interrupted; the first line printed is its URL."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from typing import Any

from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.server import Marketplace
from tests import clouds


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m gpuwatch.emulator", description=__doc__)
    parser.add_argument("--provider", metavar="NAME", help="another provider's instead, small; takes --port and --key")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--size", type=int, default=200, help="offers on the market")
    parser.add_argument("--key", default="demo-key", help="the API key that is accepted")
    parser.add_argument("--control", action="store_true", help="answer under /control, too")
    parser.add_argument("--tick-every", type=float, metavar="SECONDS", help="let the market move by itself")
    parser.add_argument("--rows-per-day", type=int, metavar="ROWS", help="enforce the daily row quota")
    parser.add_argument("--intervals", action="store_true", help="enforce the minimum interval of each endpoint")
    parser.add_argument("--gzip", action="store_true", help="compress large answers when asked")
    return parser.parse_args()


def _opened(chosen: dict[str, Any]) -> Marketplace | ProviderServer:
    provider = chosen.pop("provider")
    if provider in (None, "vastai"):
        return Marketplace(tick_every_s=chosen.pop("tick_every"), **chosen)
    try:
        return clouds.server_of(provider)().at(chosen["port"], chosen["key"])
    except KeyError:
        known = ", ".join(["vastai", *clouds.names()])
        raise SystemExit(f"there is no emulator of {provider!r}; expected one of {known}") from None


def main() -> int:
    """Serve until SIGINT or SIGTERM."""
    chosen = vars(arguments())
    ending = (signal.SIGINT, signal.SIGTERM)
    for name in ending:
        signal.signal(name, lambda *_: None)  # a shell ignores SIGINT for what it starts behind itself
    # waited for, not handled: an Event that is set by two signals at once waits for itself for ever
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with _opened(chosen) as market, contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{market.url}\n")
        sys.stdout.flush()
        signal.sigwait(ending)
    return 0


if __name__ == "__main__":
    sys.exit(main())
