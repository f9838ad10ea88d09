"""No server can block gpuwatch longer, or use more memory, than allowed."""

from __future__ import annotations

import gzip
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gpuwatch.ports.http import NoReply
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving


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


@pytest.mark.parametrize("damage", ["cut", "garbage", "unknown encoding"])
def test_damaged_compression_is_no_answer(http: PooledHttpClient, damage: str) -> None:
    good = gzip.compress(bytes(range(256)) * 100)
    bad = {"cut": good[:-20], "garbage": good[:200] + b"\xff" * 200, "unknown encoding": good}[damage]
    encoding = "br" if damage == "unknown encoding" else "gzip"
    answered = serving(lambda request, wire: wire.answer(body=bad, content_encoding=encoding))
    with answered as server, pytest.raises(NoReply):
        http.ask("GET", server.url + "/")


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
def test_a_gzip_bomb_of_300_mb_takes_under_40_mb_of_memory(filling: bytes) -> None:
    """httpx alone inflates a whole chunk of 64 KB, to 64 MB, before its size can be checked."""
    compressor = zlib.compressobj(9, wbits=31)
    piece = filling * (2**20 // len(filling))
    bomb = b"".join(compressor.compress(piece) for _ in range(300)) + compressor.flush()
    with serving(lambda request, wire: wire.answer(body=bomb, content_encoding="gzip")) as server:
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(BOMB), server.url + "/"], capture_output=True, text=True, check=True
        )
    reported, figures = child.stdout.strip().split("\n")
    assert "grows without bounds" in reported
    assert int(figures.split()[0]) < 40
