"""No server can block gpuwatch longer, or use more memory, than allowed."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from gpuwatch.ports.http import NoReply, NotSent, UnusableReply
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.toolkit.http.wire import MAX_CONNECTIONS, open_transport
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving
from tests.loopback_client import NO_CERTIFICATES
from tests.providers.toolkit.http.faulty_sockets import black_hole, listening


@pytest.fixture
def http() -> Iterator[PooledHttpClient]:
    http = PooledHttpClient()
    yield http
    http.close()


def _drip(data: bytes, wire: ReplyWriter) -> None:
    with suppress(OSError):
        for byte in data:
            wire.raw(bytes([byte]))
            time.sleep(0.1)


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Far more than the deadline, for a busy machine, and far less than the server would take."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def test_a_body_that_drips_ends_at_the_deadline(http: PooledHttpClient) -> None:
    """It is complete in the end, so only the deadline rejects it."""

    def drip(request: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n")
        _drip(b"x" * 40, wire)

    with serving(drip) as server:
        began = time.monotonic()
        with pytest.raises(NoReply, match="no complete answer in time"):
            http.ask("GET", server.url + "/", deadline_s=0.6)
        assert time.monotonic() - began > 0.5


def test_headers_that_drip_end_at_the_deadline(http: PooledHttpClient) -> None:
    def drip(request: ReceivedRequest, wire: ReplyWriter) -> None:
        _drip(b"HTTP/1.1 200 OK\r\nx-filler: aaaaaaaaaaaaa\r\ncontent-length: 0\r\n\r\n", wire)

    with serving(drip) as server:
        began = time.monotonic()
        with pytest.raises(NoReply):
            http.ask("GET", server.url + "/", deadline_s=0.6)
        assert time.monotonic() - began > 0.5


def test_a_slow_reader_of_chunks_is_ended_too(http: PooledHttpClient) -> None:
    """The deadline covers everything, including the caller's work between chunks."""

    def read_slowly(url: str) -> None:
        with http.stream("GET", url, deadline_s=0.3) as arriving:
            for _ in arriving.chunks:
                time.sleep(0.2)

    with serving(lambda request, wire: wire.answer(body=b"x" * 3_000_000)) as server, pytest.raises(NoReply):
        read_slowly(server.url + "/")


def test_silence_ends_at_the_deadline(http: PooledHttpClient) -> None:
    given_up = threading.Event()

    def wait(request: ReceivedRequest, wire: ReplyWriter) -> None:
        given_up.wait(30)
        wire.answer()

    with serving(wait) as server:
        with pytest.raises(NoReply):
            http.ask("GET", server.url + "/", deadline_s=0.4)
        given_up.set()


def test_trailers_that_drip_end_at_the_deadline(http: PooledHttpClient) -> None:
    def drip(request: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
        _drip(b"x-trailer: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n", wire)

    with serving(drip) as server, _within(20.0), pytest.raises(NoReply, match="no complete answer in time"):
        http.ask("PUT", server.url + "/", json={}, deadline_s=0.6)


def test_interim_answers_without_end_end_at_the_deadline(http: PooledHttpClient) -> None:
    def drip(request: ReceivedRequest, wire: ReplyWriter) -> None:
        _drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 4, wire)

    with serving(drip) as server, _within(20.0), pytest.raises(NoReply):
        http.ask("PUT", server.url + "/", json={}, deadline_s=0.6)


# --- before anything is sent ------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="other systems queue connections differently")
def test_a_connection_that_is_never_established_ends_at_the_deadline(http: PooledHttpClient) -> None:
    with black_hole() as port, _within(20.0), pytest.raises(NotSent, match="no connection in time"):
        http.ask("PUT", f"http://127.0.0.1:{port}/", json={}, deadline_s=0.4)


def test_a_server_that_never_answers_the_tls_greeting_ends_at_the_deadline(http: PooledHttpClient) -> None:
    with listening(_drop) as port, _within(20.0), pytest.raises(NotSent, match="no connection in time"):
        http.ask("PUT", f"https://127.0.0.1:{port}/", json={}, deadline_s=0.4)


def _drop(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def test_a_slow_name_service_ends_at_the_deadline() -> None:
    answered = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        answered.wait(30)
        return ["127.0.0.1"]

    http = PooledHttpClient(transport=open_transport(NO_CERTIFICATES, resolve=resolve))
    with _within(20.0), pytest.raises(NotSent, match="no connection in time"):
        http.ask("PUT", "http://market.example/", json={}, deadline_s=0.4)
    answered.set()
    http.close()


def test_a_request_that_is_read_too_slowly_ends_at_the_deadline(http: PooledHttpClient) -> None:
    """Each part that the server takes would restart httpx's timeout."""

    def read_slowly(connection: socket.socket) -> None:
        while connection.recv(65536):
            time.sleep(0.02)

    with listening(read_slowly) as port, _within(20.0), pytest.raises(NoReply, match="no complete answer in time"):
        http.ask("PUT", f"http://127.0.0.1:{port}/", content=bytes(60_000_000), deadline_s=1.2)


# --- many threads -----------------------------------------------------------------------------------------------------


def test_a_hundred_threads_get_their_own_answers_on_no_more_connections(http: PooledHttpClient) -> None:
    def echo(request: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.answer(body=request.body)

    def ask(number: int) -> bool:
        sent = b"%d " % number * (1 + number % 50)
        return http.ask("PUT", server.url + "/", content=sent, deadline_s=60).body == sent

    with serving(echo) as server, ThreadPoolExecutor(100) as threads:
        assert all(threads.map(ask, range(500)))
        assert (len(server.requests), server.connections <= MAX_CONNECTIONS) == (500, True)


def test_without_a_free_connection_nothing_is_sent(http: PooledHttpClient) -> None:
    given_up, arrived = threading.Event(), threading.Semaphore(0)

    def wait(request: ReceivedRequest, wire: ReplyWriter) -> None:
        arrived.release()
        given_up.wait(60)
        wire.answer()

    with serving(wait) as server, ThreadPoolExecutor(MAX_CONNECTIONS) as threads:
        asked = [threads.submit(http.ask, "GET", server.url + "/", deadline_s=60) for _ in range(MAX_CONNECTIONS)]
        assert all(arrived.acquire(timeout=60) for _ in asked)
        with _within(20.0), pytest.raises(NotSent, match="no connection in time"):
            http.ask("PUT", server.url + "/", json={}, deadline_s=0.3)
        given_up.set()
        assert [one.result(60).status for one in asked] == [200] * MAX_CONNECTIONS
        assert len(server.requests) == MAX_CONNECTIONS


# --- size -------------------------------------------------------------------------------------------------------------


def test_an_answer_over_the_cap_is_refused_while_it_arrives(http: PooledHttpClient) -> None:
    sent = 0

    def endless(request: ReceivedRequest, wire: ReplyWriter) -> None:
        nonlocal sent
        wire.raw(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError):
            while sent < 200 * 2**20:
                wire.raw(b"x" * 65536)
                sent += 65536

    with serving(endless) as server, pytest.raises(NoReply, match="larger than 1000000 bytes"):
        http.ask("GET", server.url + "/", max_bytes=1_000_000)
    assert sent < 50 * 2**20


def test_an_answer_of_just_the_cap_is_taken(http: PooledHttpClient) -> None:
    with serving(lambda request, wire: wire.answer(body=b"x" * 1000)) as server:
        assert len(http.ask("GET", server.url + "/", max_bytes=1000).body) == 1000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate", "two gzip members"])
def test_compressed_answers_arrive_whole(http: PooledHttpClient, encoding: str) -> None:
    body = b'{"offers": []}' * 50_000
    compressor = zlib.compressobj(wbits=-15)
    compressed = {
        "gzip": gzip.compress(body),
        "deflate": zlib.compress(body),
        "raw deflate": compressor.compress(body) + compressor.flush(),
        "two gzip members": gzip.compress(body[:1000]) + gzip.compress(body[1000:]),
    }[encoding]
    header = "deflate" if "deflate" in encoding else "gzip"
    with serving(lambda request, wire: wire.answer(body=compressed, content_encoding=header)) as server:
        assert http.ask("GET", server.url + "/").body == body


@pytest.mark.parametrize("damage", ["cut", "garbage", "br", "zstd", "gzip, gzip", "gzip, br"])
def test_damaged_compression_is_no_answer(http: PooledHttpClient, damage: str) -> None:
    good = gzip.compress(bytes(range(256)) * 100)
    bad = {"cut": good[:-20], "garbage": good[:200] + b"\xff" * 200}.get(damage, good)
    encoding = "gzip" if damage in {"cut", "garbage"} else damage
    answered = serving(lambda request, wire: wire.answer(body=bad, content_encoding=encoding))
    with answered as server, pytest.raises(UnusableReply):
        http.ask("GET", server.url + "/")


def _zeros(times: int, wbits: int) -> bytes:
    compressor = zlib.compressobj(9, wbits=wbits)
    return b"".join(compressor.compress(bytes(2**20)) for _ in range(times)) + compressor.flush()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate", "many gzip members", "within the ratio"])
def test_what_grows_beyond_the_cap_is_unusable(http: PooledHttpClient, encoding: str) -> None:
    """It says so, because a retry would bring the same; and the request was sent."""
    if encoding == "many gzip members":
        bomb = _zeros(1, 31) * 80
    elif encoding == "within the ratio":
        bomb = gzip.compress(bytes(range(256)) * 20, 1) * 40_000
    else:
        bomb = _zeros(80, {"gzip": 31, "deflate": 15, "raw deflate": -15}[encoding])
    header = "deflate" if "deflate" in encoding else "gzip"
    with serving(lambda request, wire: wire.answer(body=bomb, content_encoding=header)) as server:
        with pytest.raises(UnusableReply, match=r"grows without bounds|larger than"):
            http.ask("PUT", server.url + "/", json={})
        assert len(server.requests) == 1


BOMB = """
    import re, sys, time
    from gpuwatch.ports.http import NoReply
    from gpuwatch.providers.toolkit.http.client import PooledHttpClient
    def peak_mb():  # not ru_maxrss: that begins with the memory of the process which started this one
        return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
    http = PooledHttpClient()
    began, before_mb = time.monotonic(), peak_mb()
    try:
        http.ask("GET", sys.argv[1])
    except NoReply as error:
        print(error)
    http.close()
    took_s = time.monotonic() - began
    print(round(peak_mb() - before_mb), round(took_s, 2))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("filling", [b"\0", b"abcdefgh"])
def test_a_gzip_bomb_of_100_mb_takes_under_40_mb_of_memory(filling: bytes) -> None:
    """httpx alone inflates a whole chunk of 64 KB, to 64 MB, before its size can be checked."""
    compressor = zlib.compressobj(9, wbits=31)
    piece = filling * (2**20 // len(filling))
    bomb = b"".join(compressor.compress(piece) for _ in range(100)) + compressor.flush()
    with serving(lambda request, wire: wire.answer(body=bomb, content_encoding="gzip")) as server:
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(BOMB), server.url + "/"], capture_output=True, text=True, check=True
        )
    reported, figures = child.stdout.strip().split("\n")
    assert "grows without bounds" in reported
    assert int(figures.split()[0]) < 40
