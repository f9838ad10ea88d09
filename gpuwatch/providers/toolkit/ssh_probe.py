"""Checks a rented instance through its SSH port, with the system's own `ssh` client.

The host of an instance is untrusted. So its address must look like one and cannot become an option of the client; no
configuration, agent, forwarding or known-hosts file of this machine takes part; the command is fixed; a few kilobytes
of the output are read as text, and nothing in it is executed. The host key is not checked: nobody could know it.
"""

from __future__ import annotations

import math
import os
import re
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from gpuwatch.domain.launches.instance_verification import MeasuredInstance
from gpuwatch.domain.market.text import clean
from gpuwatch.ports.probing import InstanceUnreachable, LoginRefused

# Cloudflare's own speed test: it has servers near to hosts everywhere, is made to be downloaded, needs no account, and
# takes the size as a parameter. A file at one place of the world would measure the distance to it.
DOWNLOAD_URL = "https://speed.cloudflare.com/__down?bytes=100000000"
BANNER_S = 5.0
INSIDE_S = 30.0
_CONNECT_S = 10
_DOWNLOAD_S = 10
_GONE_S = 2.0  # after it has closed its output
_STREAMS = 4  # one stream rarely fills a line
_ANSWER_MAX = 16_384
_BANNER_MAX = 255  # RFC 4253 §4.2
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?")
_REFUSED = ("permission denied", "too many authentication failures", "load key", "no such identity")
_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "GlobalKnownHostsFile=/dev/null",
    "UpdateHostKeys=no",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "PreferredAuthentications=publickey",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "ControlPath=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
    f"ConnectTimeout={_CONNECT_S}",
)
_LOOK = (
    "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits 2>/dev/null | head -64 | sed 's/^/gpu,/'"
)
_MEASURE = (
    f"for i in {' '.join(map(str, range(_STREAMS)))}; do"
    f" curl -s -o /dev/null -m {_DOWNLOAD_S} -w 'bps,%{{http_code}},%{{speed_download}}\\n' '{{url}}' & done; wait"
)


class SshProbe:
    """Checks instances through the SSH port.

    Args:
        client: the `ssh` to run; found on PATH.
        url: what the instance downloads to measure its line; without quotes.
        monotonic: seconds.
    """

    def __init__(
        self,
        client: str = "ssh",
        url: str = DOWNLOAD_URL,
        monotonic: Callable[[], float] = time.monotonic,
        inside_s: float = INSIDE_S,
    ) -> None:
        self._client = client
        self._measure = _MEASURE.replace("{url}", url)
        self._monotonic = monotonic
        self._inside_s = inside_s

    def banner(self, host: str, port: int) -> str:
        """The banner of the SSH server, within five seconds. Raises NoAnswer."""
        _check(host, port)
        deadline_s = self._monotonic() + BANNER_S
        try:
            with socket.create_connection((host, port), timeout=BANNER_S) as line:
                return self._first_words(line, deadline_s)
        except OSError as error:
            raise InstanceUnreachable(f"{host}:{port}: {error.strerror or 'no answer'}") from error

    def inside(
        self, host: str, port: int, key_file: str, *, download: bool, user: str | None = None
    ) -> MeasuredInstance:
        """Log in and measure, within thirty seconds. Raises NoAnswer, LoginRefused."""
        user = user or "root"
        _check(host, port, user)
        command = f"{_LOOK}; {self._measure}" if download else _LOOK
        options = [part for option in _OPTIONS for part in ("-o", option)]
        argv = [self._client, "-F", "none", "-n", "-T", "-i", key_file, "-l", user, "-p", str(port), *options]
        code, said, complaint = self._run([*argv, "--", host, command])
        if code == 255:  # the client's own code: whatever ran there ended with another
            raise _why(complaint, host, port)
        return parse_probe_output(said)

    def _first_words(self, line: socket.socket, deadline_s: float) -> str:
        said = b""
        while b"\n" not in said and len(said) < _BANNER_MAX:
            left_s = deadline_s - self._monotonic()
            if left_s <= 0:
                raise InstanceUnreachable("it sends nothing")
            line.settimeout(left_s)
            part = line.recv(_BANNER_MAX)
            if not part:
                raise InstanceUnreachable("it hangs up")
            said += part
        words = clean(said.split(b"\n")[0].decode("ascii", "replace").strip())
        if not words.startswith("SSH-"):
            raise InstanceUnreachable(f"not an SSH server, it sends {words[:40]!r}")
        return words

    def _run(self, argv: list[str]) -> tuple[int, str, str]:
        """Exit code, output and error output; limited in size and time."""
        try:
            client = subprocess.Popen(  # noqa: S603 - fixed, but for an address that was checked
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise LoginRefused(f"{self._client} cannot be run: {error.strerror}") from error
        with client:
            try:
                said, complaint = self._listen(client)
                return client.wait(timeout=_GONE_S), said, complaint
            except subprocess.TimeoutExpired as error:
                raise InstanceUnreachable(f"its output did not end within {self._inside_s:g} s") from error
            finally:
                _kill(client)

    def _listen(self, client: subprocess.Popen[bytes]) -> tuple[str, str]:
        assert client.stdout is not None
        assert client.stderr is not None
        streams = {client.stdout.fileno(): b"", client.stderr.fileno(): b""}
        deadline_s = self._monotonic() + self._inside_s
        with selectors.DefaultSelector() as selector:
            for stream in streams:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                left_s = deadline_s - self._monotonic()
                ready = selector.select(left_s) if left_s > 0 else []
                if not ready:
                    raise InstanceUnreachable(f"no answer within {self._inside_s:g} s")
                for key, _ in ready:
                    part = os.read(key.fd, 4096)
                    if not part:
                        selector.unregister(key.fd)
                    streams[key.fd] = (streams[key.fd] + part)[:_ANSWER_MAX]
        said, complaint = (text.decode("utf-8", "replace") for text in streams.values())
        return said, complaint


def parse_probe_output(said: str) -> MeasuredInstance:
    """Parse the output of the fixed command. One GPU that cannot be read makes the GPUs unknown, never fewer."""
    gpus: list[tuple[str, float] | None] = []
    bits: list[float] = []
    for line in said.splitlines():
        kind, _, rest = line.partition(",")
        name, _, number = rest.rpartition(",")
        value = _number(number)
        if kind == "gpu":
            gpus.append(None if value is None or not name else (clean(name.strip()), value))
        elif kind == "bps" and name == "200" and value is not None:
            bits.append(value * 8)
    whole = tuple(gpu for gpu in gpus if gpu is not None)
    return MeasuredInstance(
        gpus=whole if len(whole) == len(gpus) else (), download_mbps=sum(bits) / 1e6 if bits else None
    )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number < 1e12 else None


def _check(host: str, port: int, user: str = "root") -> None:
    if not _HOST.fullmatch(host) or not 0 < port < 65_536 or not _USER.fullmatch(user):
        raise InstanceUnreachable("it has no valid address")


def _why(complaint: str, host: str, port: int) -> InstanceUnreachable | LoginRefused:
    words = clean(" ".join(complaint.split()) or "no connection")
    kind = LoginRefused if any(sign in words.lower() for sign in _REFUSED) else InstanceUnreachable
    return kind(f"{host}:{port}: {words}")


def _kill(client: subprocess.Popen[bytes]) -> None:
    """Kill the client and what it started, if it is still running."""
    if client.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(client.pid, signal.SIGKILL)
