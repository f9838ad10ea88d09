"""The path of one offer through the daemon's own service: the functions and data forms on its way.

    python -m benchmarks.trace

Runs the service on the embedded marketplace, over HTTP, with real settings and a database file, and profiles one poll
that rents. A *hop* is a function of gpuwatch that was entered between the search's answer and the create request and
is on the call stack during a step of the path (match, decide, reserve, commit, requote, send): helpers that return
before the next step do not count. A *data form* is a struct on these frames that contains the offer.
"""

from __future__ import annotations

import inspect
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.bootstrap.service import Service, build_service
from gpuwatch.domain.watches.decide import decide
from gpuwatch.domain.watches.match import matches
from gpuwatch.emulator import Marketplace
from gpuwatch.engine.launches.renting.requoter import Requoter
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.settings import load
from gpuwatch.storage.launches.launch_admission import reserve

# The code (or failpoint) that marks each step, in the order of the path.
STEPS: Mapping[CodeType | str, str] = {
    matches.__code__: "match",
    decide.__code__: "decide",
    reserve.__code__: "reserve",
    "intent.after_commit": "commit",
    Requoter.requote.__code__: "requote",
    inspect.unwrap(PooledHttpClient.stream).__code__: "send",
}
_SETTINGS = """
timezone = "UTC"
database_url = "sqlite:///{folder}/trace.db"
dry_run = false

[budget]
max_usd_hour = 5.0

[providers.vastai]
base_url = "{url}"
api_key = "trace-key"
search_interval = "0s"

[[watch]]
name = "h100"
gpu = ["H100 SXM"]
max_price = 1.90
action = "launch"

[watch.launch]
image = "pytorch/pytorch"
max_runtime = "1h"
"""


class Hop(msgspec.Struct, frozen=True):
    """One function on the path, and the data forms that it receives or returns."""

    function: str
    steps: tuple[str, ...]
    forms: tuple[str, ...]


class PathTrace:
    """Profiles the threads of one poll, from the search's answer to the create request."""

    def __init__(self, offer_id: str) -> None:
        self.recording = False
        self._offer_id = offer_id
        self._entered: dict[FrameType, int] = {}
        self._values: dict[FrameType, list[object]] = {}
        self._on_path: dict[FrameType, list[str]] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        name = _name(frame)
        if name is None:
            return
        if event == "return" and name.endswith("Market.search"):
            self.recording = True
        elif event == "return" and frame in self._values:
            self._values[frame].append(arg)
        elif event == "call" and self.recording:
            self._enter(frame)

    def _enter(self, frame: FrameType) -> None:
        self._entered[frame] = len(self._entered)
        self._values[frame] = list(frame.f_locals.values())
        is_failpoint = frame.f_code is failpoint.__code__
        step = STEPS.get(frame.f_locals["name"] if is_failpoint else frame.f_code)
        if step is None:
            return
        above: FrameType | None = frame.f_back if is_failpoint else frame
        while above is not None:
            if above in self._entered:
                self._on_path.setdefault(above, []).append(step)
            above = above.f_back
        if step == "send":
            self.recording = False

    def hops(self) -> list[Hop]:
        """Return the hops in the order of entry."""
        found = sorted(self._on_path, key=self._entered.__getitem__)
        return [
            Hop(name, tuple(dict.fromkeys(self._on_path[frame])), self._forms(frame))
            for frame in found
            if (name := _name(frame)) is not None and "<" not in name
        ]

    def _forms(self, frame: FrameType) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for value in self._values[frame]:
            self._carries(value, found)
        return tuple(found)

    def _carries(self, value: object, found: dict[str, None]) -> bool:
        """Whether a value contains the offer; collects the names of the structs that do, outermost first."""
        if isinstance(value, msgspec.Struct):
            mine: dict[str, None] = {}
            names = type(value).__struct_fields__
            held = getattr(value, "offer_id", None) == self._offer_id
            for name in names:
                held |= self._carries(getattr(value, name), mine)
            if held:
                found.setdefault(type(value).__name__)
                found.update(mine)
            return held
        if isinstance(value, Mapping):
            value = tuple(value.values())
        if isinstance(value, list | tuple):
            held = [self._carries(one, found) for one in value]  # all of them: each may contain another form
            return any(held)
        return False


def _name(frame: FrameType) -> str | None:
    """Return module and function without the package; None: not gpuwatch's, or the marketplace's side."""
    module = frame.f_globals.get("__name__", "")
    if not module.startswith("gpuwatch.") or module.startswith("gpuwatch.emulator"):
        return None
    code: Any = frame.f_code
    return f"{module.removeprefix('gpuwatch.')}.{code.co_qualname}"


def trace() -> list[Hop]:
    """Run one poll that finds a bargain and rents it."""
    with tempfile.TemporaryDirectory() as folder, Marketplace(seed=7, key="trace-key", size=150) as market:
        path = Path(folder, "gpuwatch.toml")
        path.write_text(_SETTINGS.format(folder=folder, url=market.url))
        settings = load(str(path), env={"HOME": folder})
        with open_store(settings) as store, build_service(settings, store) as service:
            for reconciler in service.following.reconcilers.values():
                reconciler.run_if_due(real_now())
            offer_id = market.publish(gpu="H100 SXM", count=1, usd_hour=0.5)
            watched = PathTrace(str(offer_id))
            with _profiled(watched):
                _poll(service)
            return watched.hops()


def _poll(service: Service) -> None:
    for worker in service.polling.workers.values():
        worker.hunt()
    for _ in range(1000):
        if service.launch_repository.alive() and not service.slots.in_flight():
            return
        time.sleep(0.01)
    raise RuntimeError("nothing was rented")


@contextmanager
def _profiled(watched: PathTrace) -> Iterator[None]:
    threading.setprofile(watched)
    sys.setprofile(watched)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def data_forms(hops: Sequence[Hop]) -> list[str]:
    """Return the distinct ones, in the order of the path."""
    return list(dict.fromkeys(form for hop in hops for form in hop.forms))


def as_text(hops: Sequence[Hop]) -> str:
    """Format the path as docs/architecture.md shows it."""
    lines, before, width = [], "", max(len(hop.function) for hop in hops)
    for number, hop in enumerate(hops, 1):
        step = ", ".join(hop.steps[:2]) if len(hop.steps) == 2 else hop.steps[0]
        shown = "" if step == before else step
        lines.append(f"{number:2}  {shown:15} {hop.function:{width}} {', '.join(hop.forms)}".rstrip())
        before = step
    forms = data_forms(hops)
    lines += ["", f"{len(hops)} hops, {hops_to_create(hops)} of them before the provider's own code"]
    return "\n".join([*lines, f"{len(forms)} data forms: {', '.join(forms)}"])


def hops_to_create(hops: Sequence[Hop]) -> int:
    """Return the number of hops before the launcher of the provider."""
    return next(number for number, hop in enumerate(hops) if hop.function.startswith("providers."))


def main() -> None:
    logging.disable()
    print(as_text(trace()))


if __name__ == "__main__":
    main()
