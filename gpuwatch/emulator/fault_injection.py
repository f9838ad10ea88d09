"""The effect of each fault on a request or its answer."""

from __future__ import annotations

import functools
import gzip
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpuwatch.emulator.answers import EmulatorReply, quota_exceeded, refuse, reply, text_reply, too_many_requests
from gpuwatch.emulator.endpoints.lists import LIST_FAULTS
from gpuwatch.emulator.request import EmulatorRequest, Fault
from gpuwatch.emulator.simulation import Simulation

Answer = Callable[[], EmulatorReply]
FaultHandler = Callable[[Simulation, EmulatorRequest, Fault, Answer], EmulatorReply]
BAD_GATEWAY = "<html><head><title>{0} {1}</title></head><body><center><h1>{0} {1}</h1></center></body></html>"
EDGE_STATUSES = {502: "Bad Gateway", 503: "Service Temporarily Unavailable", 504: "Gateway Time-out"}
DEFAULT_HOLD_S = 600.0  # longer than any client waits
# Faults that the endpoints themselves implement; the other kinds are in FAULT_HANDLERS and lifecycles.FATES.
ENDPOINT_FAULTS = LIST_FAULTS | {
    "offer_gone", "refuse_create", "bid_lost", "duplicate_effect", "stale_answer", "other_hardware", "instance_null",
    "undead",
}  # fmt: skip


def apply_fault(simulation: Simulation, request: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """Apply a fault to a request."""
    handler = FAULT_HANDLERS.get(fault.kind)
    if handler is None:
        request.fault = fault
        return answer()
    return handler(simulation, request, fault, answer)


# --- instead of an answer: nothing takes effect ------------------------------------------------------------------


def rate_limited(simulation: Simulation, _: EmulatorRequest, fault: Fault, __: Answer) -> EmulatorReply:
    """429 in one of the shapes `text`, `text-threshold`, `detail`, `message`, `headers`, `rate_limit_exceeded`."""
    return too_many_requests(fault.get("shape", "detail"), float(fault.get("threshold_s", 4.5)), simulation.clock())


def quota(simulation: Simulation, _: EmulatorRequest, fault: Fault, __: Answer) -> EmulatorReply:
    """429 of the daily row quota."""
    return quota_exceeded(int(fault.get("limit", 20_000)), simulation.clock())


def status(_: Simulation, __: EmulatorRequest, fault: Fault, ___: Answer) -> EmulatorReply:
    """A bare status; for 502 to 504 the edge answers in HTML, otherwise the API in JSON."""
    code = int(fault.get("status", fault.kind))
    if code in EDGE_STATUSES:
        return text_reply(BAD_GATEWAY.format(code, EDGE_STATUSES[code]), code, "text/html")
    error = fault.get("error", {401: "auth_error", 403: "auth_error", 404: "not_found"}.get(code, "server_error"))
    return refuse(code, error, fault.get("msg", f"error {code}/1: something went wrong")).reply


def wrong_body(_: Simulation, __: EmulatorRequest, fault: Fault, ___: Answer) -> EmulatorReply:
    """200 with an unrelated body."""
    bodies = {
        "garbage": b'\x00\xff{]"offers": \xc3(, nonsense',
        "empty": b"",
        "empty_object": b"{}",
        "empty_list": b"[]",
        "html": BAD_GATEWAY.format(200, "Please log in").encode(),
        "deep": b"[" * 100_000,
    }
    return EmulatorReply(200, bodies[fault.kind], "text/html" if fault.kind == "html" else "application/json")


def redirected(_: Simulation, __: EmulatorRequest, fault: Fault, ___: Answer) -> EmulatorReply:
    """302 to another place; a client must not send its key there."""
    return reply({"message": "Found"}, 302, {"Location": str(fault.get("location", "http://127.0.0.1:9/"))})


def reset(_: Simulation, __: EmulatorRequest, ___: Fault, ____: Answer) -> EmulatorReply:
    """Reset the connection before anything happens."""
    return EmulatorReply(200, b"").with_delivery(reset=True)


def never(_: Simulation, __: EmulatorRequest, fault: Fault, ___: Answer) -> EmulatorReply:
    """Drop the request, silently."""
    return EmulatorReply(200, b"").with_delivery(hold_s=float(fault.get("hold_s", DEFAULT_HOLD_S)))


def late(simulation: Simulation, request: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """Delay the request, so that it takes effect `after_s` seconds after the client gave up."""

    def arrive() -> None:
        with simulation.lock:
            simulation.delayed_effects.append((simulation.clock() + float(fault.get("after_s", 5.0)), answer))

    return EmulatorReply(200, b"").with_delivery(hold_s=float(fault.get("hold_s", DEFAULT_HOLD_S)), on_close=arrive)


# --- the request takes effect, its answer is lost ----------------------------------------------------------------


def timeout_after(_: Simulation, __: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """Accept it, then stay silent."""
    return answer().with_delivery(hold_s=float(fault.get("hold_s", DEFAULT_HOLD_S)))


def reset_after(_: Simulation, __: EmulatorRequest, ___: Fault, answer: Answer) -> EmulatorReply:
    """Accept it, then reset the connection."""
    return answer().with_delivery(reset=True)


def status_after(simulation: Simulation, request: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """Accept it, but answer with a server error."""
    answer()
    code = int(fault.get("status", fault.kind.partition("_")[0]))
    return status(simulation, request, Fault(str(code), fault.settings), answer)


def unparsable_after(simulation: Simulation, request: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """Accept it, and answer 200 with a body without information."""
    answer()
    return wrong_body(simulation, request, Fault(fault.get("body", "empty"), {}), answer)


# --- the answer arrives, but badly delivered -------------------------------------------------------------------


def slow(_: Simulation, __: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """Nothing for a while, then the whole answer."""
    return answer().with_delivery(delay_s=float(fault.get("delay_s", 1.0)))


def drip(_: Simulation, __: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """A few bytes at a time."""
    return answer().with_delivery(drip_s=float(fault.get("pause_s", 0.2)))


def cut(_: Simulation, __: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """End the connection in the middle of the body."""
    complete = answer()
    return complete.with_delivery(cut_at=int(len(complete.body) * float(fault.get("share", 0.5))))


def gzipped(_: Simulation, request: EmulatorRequest, ___: Fault, answer: Answer) -> EmulatorReply:
    """Compress the body, if the client accepts it."""
    return compress(answer()) if request.gzip else answer()


def bomb(_: Simulation, __: EmulatorRequest, fault: Fault, ___: Answer) -> EmulatorReply:
    """Send a small body that unpacks into `size_mb` million spaces, accepted or not."""
    return EmulatorReply(200, gzip_bomb_body(int(fault.get("size_mb", 300))), headers=(("Content-Encoding", "gzip"),))


@functools.lru_cache(maxsize=4)
def gzip_bomb_body(size_mb: int) -> bytes:
    """Pack `size_mb` million spaces into one gzip member, so that clients that stop after the first member see all."""
    chunk = b" " * 1_000_000
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(chunk) + packer.flush(zlib.Z_FULL_FLUSH)  # a complete block, so it may be repeated
    checksum = functools.reduce(lambda crc, _: zlib.crc32(chunk, crc), range(size_mb), 0)
    tail = struct.pack("<II", checksum, size_mb * len(chunk) & 0xFFFFFFFF)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * size_mb + b"\x03\0" + tail


def compress(answer: EmulatorReply) -> EmulatorReply:
    """Compress an answer."""
    return replace(answer, body=gzip.compress(answer.body, 1), headers=(*answer.headers, ("Content-Encoding", "gzip")))


# --- the answer arrives, with wrong contents ---------------------------------------------------------------------


def renamed(_: Simulation, __: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """Rename a field of every offer."""
    old, new = fault.get("field", "dph_total"), fault.get("to", "price_total")

    def rename(row: dict[str, Any], _: int) -> dict[str, Any]:
        return {new if name == old else name: value for name, value in row.items()}

    return with_rows(answer(), rename)


def bad_values(_: Simulation, __: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """Make a field of every `every`-th offer NaN, huge, negative, text, null or missing."""
    field, every = fault.get("field", "dph_total"), int(fault.get("every", 2))
    value = BAD_VALUES[fault.kind]

    def corrupt(row: dict[str, Any], n: int) -> dict[str, Any]:
        if n % every:
            return row
        if fault.kind == "missing":
            return {name: item for name, item in row.items() if name != field}
        return row | {field: value}

    return with_rows(answer(), corrupt)


BAD_VALUES: dict[str, Any] = {
    "nan": float("nan"),
    "huge": 1e308,
    "infinite": float("inf"),
    "negative": -1.5,
    "zero": 0,
    "wrong_type": {"usd": "3"},
    "null": None,
    "long_text": "x" * 1_000_000,
    "control_text": "\x1b[31m<b>H100\u202e\x00\n</b>",
    "missing": None,
}


def duplicated(_: Simulation, __: EmulatorRequest, ___: Fault, answer: Answer) -> EmulatorReply:
    """Send every offer twice."""
    body = json.loads(answer().body)
    body["offers"] = [row for row in body.get("offers", []) for _ in range(2)]
    return EmulatorReply(200, json.dumps(body).encode())


def with_rows(answer: EmulatorReply, change: Callable[[dict[str, Any], int], dict[str, Any]]) -> EmulatorReply:
    """Rewrite the offers, or the instances, of an answer."""
    body = json.loads(answer.body)
    for key in ("offers", "instances"):
        if isinstance(body.get(key), list):
            body[key] = [change(row, n) for n, row in enumerate(body[key])]
    return replace(answer, body=json.dumps(body).encode())  # the standard library writes NaN as NaN, as intended


def price_change(simulation: Simulation, request: EmulatorRequest, fault: Fault, answer: Answer) -> EmulatorReply:
    """Change the host's price between the search and the create."""
    with simulation.lock:
        listing = simulation.market.listings.get(int(request.ids[0])) if request.ids else None
        if listing is not None:
            factor = float(fault.get("factor", 1.5))
            costs = listing.slice.base_usd_hour * factor, listing.slice.min_bid_usd_hour * factor
            simulation.market.reprice(listing.id, *costs)
    return answer()


FAULT_HANDLERS: dict[str, FaultHandler] = {
    "429": rate_limited,
    "quota": quota,
    **dict.fromkeys(("status", "400", "401", "403", "404", "410", "500", "502", "503", "504"), status),
    **dict.fromkeys(("garbage", "empty", "empty_object", "empty_list", "html", "deep"), wrong_body),
    "redirect": redirected,
    "reset": reset,
    "never": never,
    "late": late,
    "timeout_after": timeout_after,
    "reset_after": reset_after,
    **dict.fromkeys(("500_after", "502_after", "503_after", "504_after"), status_after),
    "unparsable_after": unparsable_after,
    "slow": slow,
    "drip": drip,
    "cut": cut,
    "gzip": gzipped,
    "gzip_bomb": bomb,
    "renamed": renamed,
    **dict.fromkeys(BAD_VALUES, bad_values),
    "duplicated": duplicated,
    "price_change": price_change,
}
