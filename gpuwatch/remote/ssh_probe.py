"""Checks a rented instance through its SSH port, with the system's own `ssh` client.

The host of an instance is untrusted (`ssh_client`): the command is fixed, a few kilobytes of the output are parsed as
text, and nothing in it is executed. The host key is not checked, because it is unknown.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from io import BytesIO

from gpuwatch.domain.launches.instance_verification import MeasuredInstance
from gpuwatch.domain.market.text import clean
from gpuwatch.ports.probing import InstanceUnreachable, LoginRefused
from gpuwatch.remote.bounded_process import BoundedResult, run_bounded
from gpuwatch.remote.ssh_client import is_address, is_refusal, ssh_command

# Cloudflare's speed test: it has servers near hosts everywhere, is intended for downloads, needs no account, and takes
# the size as a parameter. A file on one server would measure the distance to that server.
DOWNLOAD_URL = "https://speed.cloudflare.com/__down?bytes=100000000"
BANNER_S = 5.0
INSIDE_S = 30.0
_DOWNLOAD_S = 10
_STREAMS = 4  # one stream rarely uses a whole connection
_ANSWER_MAX = 16_384
_BANNER_MAX = 255  # RFC 4253 §4.2
_OPTIONS = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")
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
        url: the download by which the instance measures its connection; without quotes.
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
        """Return the banner of the SSH server, within five seconds. Raises NoAnswer."""
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
        said = BytesIO()
        result = self._run([*ssh_command(key_file, user, port, _OPTIONS, self._client), "--", host, command], said)
        if result.exit_code is None:
            raise InstanceUnreachable(f"no answer within {self._inside_s:g} s")
        if result.exit_code == 255:  # the client's own code: the remote command returns other codes
            raise _why(result.stderr.decode("utf-8", "replace"), host, port)
        return parse_probe_output(said.getvalue().decode("utf-8", "replace"))

    def _first_words(self, line: socket.socket, deadline_s: float) -> str:
        said = b""
        while b"\n" not in said and len(said) < _BANNER_MAX:
            left_s = deadline_s - self._monotonic()
            if left_s <= 0:
                raise InstanceUnreachable("it sends no data")
            line.settimeout(left_s)
            part = line.recv(_BANNER_MAX)
            if not part:
                raise InstanceUnreachable("it closes the connection")
            said += part
        words = clean(said.split(b"\n")[0].decode("ascii", "replace").strip())
        if not words.startswith("SSH-"):
            raise InstanceUnreachable(f"not an SSH server: it sends {words[:40]!r}")
        return words

    def _run(self, argv: list[str], said: BytesIO) -> BoundedResult:
        try:
            return run_bounded(argv, said, timeout_s=self._inside_s, max_bytes=_ANSWER_MAX)
        except OSError as error:
            raise LoginRefused(f"cannot run {self._client}: {error.strerror}") from error


def parse_probe_output(said: str) -> MeasuredInstance:
    """Parse the output of the fixed command. One unreadable GPU makes all GPUs unknown, never fewer."""
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
    if not is_address(host, port, user):
        raise InstanceUnreachable("it has no valid address")


def _why(complaint: str, host: str, port: int) -> InstanceUnreachable | LoginRefused:
    words = clean(" ".join(complaint.split()) or "no connection")
    kind = LoginRefused if is_refusal(words) else InstanceUnreachable
    return kind(f"{host}:{port}: {words}")
