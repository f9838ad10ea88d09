"""A loopback marketplace for benchmarks: rows of the emulator's market, encoded in advance, for any query.

    python -m benchmarks.server [--sizes 64 2000 10000]      prints its port, ends when its standard input closes

Below `/<N>`: `GET …/api/v0/bundles/` returns all N offers (2.7 KB each, 100 fields), `PUT …/api/v0/asks/<id>/` rents
and records when the request arrived, `GET …/api/v1/instances/` lists nothing, `GET …/api/v0/users/current/` returns
the account. `POST /control/…`: `evolve/<N>` is one poll interval (2 % repriced, 1 % replaced, each `duration` a minute
less), `publish/<N>/<k>` adds a bargain, `withdraw/<N>` removes it, `launches` returns [[id, ns], …]. Times are
CLOCK_MONOTONIC, comparable between the processes of a machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from gpuwatch.emulator.market.emulated_market import EmulatedMarket
from gpuwatch.emulator.market.machines import PriceView

NOW_S = float(int(time.time()))  # an offer whose end has passed is not for rent
GPU, COUNT, USD_HOUR = "H100 SXM", 1, 0.42  # the bargain
FIRST_BARGAIN = 99_000_000
_VIEW = PriceView(False, 8.0)
_PRICES = ("dph_base", "dph_total", "dph_total_adj", "discounted_dph_total", "min_bid")


_INTERVAL_S = 60.0  # between polls
_Text = tuple[bytes, float, bytes]  # a row before its duration, its end date, and the row after its duration


class Rows:
    """N offers, each encoded once; a poll interval encodes only the changed ones again."""

    def __init__(self, size: int, seed: int) -> None:
        self._rng = random.Random(seed)
        spare = max(1000, size)
        market = EmulatedMarket(seed, lambda: NOW_S, size + spare, odd_rows=False)
        rows = [listing.row(_VIEW, NOW_S) for listing in market.listings.values()]
        self._rows, self._spare = rows[:size], rows[size:]
        self._texts = [_text_of(row) for row in self._rows]
        self._next_id = max(row["id"] for row in rows)
        self._now_s = NOW_S
        self.bargain: _Text | None = None
        self.body = self._body()

    def evolve(self, repriced: float = 0.02, replaced: float = 0.01) -> None:
        size = len(self._rows)
        moved = self._rng.sample(range(size), max(2, int(size * (repriced + replaced))))
        cut = max(1, int(size * repriced))
        for at in moved[:cut]:
            factor = self._rng.lognormvariate(0.0, 0.05)
            self._rows[at] = self._rows[at] | {key: self._rows[at][key] * factor for key in _PRICES}
        for at in moved[cut:]:
            self._next_id += self._rng.randrange(1, 60)
            fresh = self._rng.choice(self._spare)
            self._rows[at] = fresh | {
                "id": self._next_id,
                "ask_contract_id": self._next_id,
                "machine_id": self._next_id,
            }
        for at in moved:
            self._texts[at] = _text_of(self._rows[at])
        self._now_s += _INTERVAL_S
        self.body = self._body()

    def publish(self, number: int) -> int:
        """Add a new machine's offer in the middle of the answer; return its id."""
        offer_id = FIRST_BARGAIN + number
        model = next(row for row in self._rows + self._spare if row["gpu_name"] == GPU and row["num_gpus"] == COUNT)
        row = model | {"id": offer_id, "ask_contract_id": offer_id, "machine_id": offer_id, "rentable": True}
        row |= dict.fromkeys(_PRICES, USD_HOUR) | {"reliability2": 0.999, "verification": "verified"}
        row |= {"storage_cost": 0.0, "storage_total_cost": 0.0}
        self.bargain = _text_of(row)
        self.body = self._body()
        return offer_id

    def withdraw(self) -> None:
        self.bargain = None
        self.body = self._body()

    def _body(self) -> bytes:
        texts = self._texts
        if self.bargain:
            middle = len(texts) // 2
            texts = [*texts[:middle], self.bargain, *texts[middle + 1 :]]
        rows = (b"%b%.6f%b" % (before, end_s - self._now_s, after) for before, end_s, after in texts)
        return b'{"offers":[%b]}' % b",".join(rows)


def _text_of(row: dict[str, Any]) -> _Text:
    """Encode a row; vast.ai sends `duration`, the seconds until `end_date`, just before it."""
    lasting = {name: value for name, value in row.items() if name != "duration"}
    before, end_date, after = msgspec.json.encode(lasting).partition(b'"end_date":')
    return before + b'"duration":', row["end_date"], b"," + end_date + after


class Marketplace:
    """State shared by the connections."""

    def __init__(self, sizes: list[int], seed: int = 7) -> None:
        self.rows = {size: Rows(size, seed) for size in sizes}
        self.launches: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, arrived_ns: int) -> bytes:
        match path.partition("?")[0].strip("/").split("/"):
            case ["control", *words]:
                return json.dumps(self._control(words)).encode()
            case [size, "api", "v0", "bundles"]:
                return self.rows[int(size)].body
            case [_, "api", "v0", "asks", offer_id] if method == "PUT":
                self.launches.append((int(offer_id), arrived_ns))
                return b'{"success":true,"new_contract":%d}' % (int(offer_id) + 1)
            case [_, "api", "v1", "instances"]:
                return b'{"success":true,"instances":[],"total_instances":0,"instances_found":0,"next_token":null}'
            case [_, "api", "v0", "users", "current"]:
                return b'{"id":7,"credit":1000.0}'
            case _:
                return b'{"success":false,"msg":"no such path"}'

    def _control(self, words: list[str]) -> Any:
        with self._lock:
            match words:
                case ["evolve", size]:
                    self.rows[int(size)].evolve()
                case ["publish", size, number]:
                    offer_id = self.rows[int(size)].publish(int(number))
                    return {"id": offer_id, "visible_ns": time.monotonic_ns()}
                case ["withdraw", size]:
                    self.rows[int(size)].withdraw()
                case ["launches"]:
                    return self.launches
        return {}


class _Connection(socketserver.BaseRequestHandler):
    market: Marketplace

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting = b""
        while (request := self._read(waiting)) is not None:
            method, path, arrived_ns, waiting = request
            body = self.market.answer(method, path, arrived_ns)
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            try:
                self.request.sendall(head + body if len(body) < 4096 else head)
                if len(body) >= 4096:
                    self.request.sendall(body)
            except OSError:
                return

    def _read(self, got: bytes) -> tuple[str, str, int, bytes] | None:
        while b"\r\n\r\n" not in got:
            if not (more := self._receive()):
                return None
            got += more
        arrived_ns = time.monotonic_ns()
        head, _, rest = got.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        lengths = (line.partition(b":")[2] for line in lines if line.lower().startswith(b"content-length:"))
        length = int(next(lengths, b"0"))
        while len(rest) < length:
            if not (more := self._receive()):
                return None
            rest += more
            arrived_ns = time.monotonic_ns()
        method, path = lines[0].decode().split()[:2]
        return method, path, arrived_ns, rest[length:]

    def _receive(self) -> bytes:
        try:
            return bytes(self.request.recv(65536))
        except OSError:
            return b""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


class Control:
    """The client side of `/control`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def url(self, size: int) -> str:
        return f"http://127.0.0.1:{self.port}/{size}"

    def __call__(self, *words: object) -> Any:
        self._connection.request("POST", "/control/" + "/".join(map(str, words)))
        return json.loads(self._connection.getresponse().read())

    def close(self) -> None:
        self._connection.close()


@contextmanager
def running(sizes: list[int]) -> Iterator[Control]:
    """Run the server as a process of its own, with its control."""
    command = [sys.executable, "-m", "benchmarks.server", "--sizes", *map(str, sizes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        control = Control(int(process.stdout.readline()))
        try:
            yield control
        finally:
            control.close()
            process.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 2000, 10_000])
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    _Connection.market = Marketplace(args.sizes)
    with _Server(("127.0.0.1", args.port), _Connection) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.buffer.read()
        server.shutdown()


if __name__ == "__main__":
    main()
