"""The minimal script of a check: httpx, a typed decode, the watches' cheapest offers printed. Nothing is stored.

argv: base URL, watches.toml.
"""

import sys
import tomllib

sys.modules["httpx._main"] = None  # type: ignore[assignment]  # else it loads its command line, with rich and click

import httpx  # noqa: E402
import msgspec  # noqa: E402


class Offer(msgspec.Struct, gc=False):
    id: int
    machine_id: int
    gpu_name: str
    num_gpus: int
    dph_total: float
    reliability2: float
    verification: str
    geolocation: str | None


class Answer(msgspec.Struct, gc=False):
    offers: list[Offer]


with open(sys.argv[2], "rb") as file:
    watches = tomllib.load(file)["watch"]
with httpx.Client(timeout=60) as client:
    offers = msgspec.json.decode(client.get(sys.argv[1] + "/api/v0/bundles/").content, type=Answer).offers
by_gpu: dict[str, list[Offer]] = {}
for o in offers:
    by_gpu.setdefault(o.gpu_name, []).append(o)
for watch in watches:
    most = watch["max_price"] / 1.2
    found = [
        o
        for o in by_gpu.get(watch["gpu"], ())
        if o.num_gpus == 1 and o.dph_total <= most and o.reliability2 >= watch["min_reliability"]
    ]
    for o in sorted(found, key=lambda o: o.dph_total)[:10]:
        sys.stdout.write(f"{watch['name']}: {o.id} {o.gpu_name} ${o.dph_total:.4f}/h {o.geolocation}\n")
