"""Checks a rented instance through its SSH port, with the system's own `ssh` client.

The host of an instance is untrusted (`ssh`): the command is fixed, a few kilobytes of the output are parsed as
text, and nothing in it is executed. The host key is not checked, because it is unknown.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from io import BytesIO

from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.instances.instance_checks import MeasuredInstance
from gpuwatch.domain.market.offer import clean
from gpuwatch.ports.remote import InstanceUnreachable, LoginRefused
from gpuwatch.remote.bounded_process import BoundedResult, run_bounded
from gpuwatch.remote.ssh import is_rejection, ssh_command

# Cloudflare's speed test: it has servers near hosts everywhere, is intended for downloads, needs no account, and takes
# the size as a parameter. A file on one server would measure the distance to that server.
DOWNLOAD_URL = "https://speed.cloudflare.com/__down?bytes=100000000"
BANNER_TIMEOUT_S = 5.0
MEASURE_TIMEOUT_S = 30.0
_DOWNLOAD_S = 10
_STREAMS = 4  # one stream rarely uses a whole connection
_MAX_OUTPUT_BYTES = 16_384
_MAX_BANNER_BYTES = 255  # RFC 4253 §4.2
_OPTIONS = (
    *("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null"),
    "UpdateHostKeys=no",
)
_GPU_QUERY = (
    "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits 2>/dev/null | head -64 | sed 's/^/gpu,/'"
)
_DOWNLOAD_TEST = (
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
        measure_timeout_s: float = MEASURE_TIMEOUT_S,
    ) -> None:
        self._client = client
        self._download_test = _DOWNLOAD_TEST.replace("{url}", url)
        self._monotonic = monotonic
        self._measure_timeout_s = measure_timeout_s

    def banner(self, host: str, port: int) -> str:
        """Return the banner of the SSH server, within five seconds. Raises InstanceUnreachable."""
        _check(host, port)
        deadline_s = self._monotonic() + BANNER_TIMEOUT_S
        try:
            with socket.create_connection((host, port), timeout=BANNER_TIMEOUT_S) as connection:
                return self._read_banner(connection, deadline_s)
        except OSError as error:
            raise InstanceUnreachable(f"{host}:{port}: {error.strerror or 'no answer'}") from error

    def measure(
        self, host: str, port: int, key_file: str, *, download: bool, user: str | None = None
    ) -> MeasuredInstance:
        """Log in and measure, within thirty seconds. Raises InstanceUnreachable, LoginRefused."""
        user = user or "root"
        _check(host, port, user)
        command = f"{_GPU_QUERY}; {self._download_test}" if download else _GPU_QUERY
        stdout = BytesIO()
        result = self._run([*ssh_command(key_file, user, port, _OPTIONS, self._client), "--", host, command], stdout)
        if result.exit_code is None:
            raise InstanceUnreachable(f"no answer within {self._measure_timeout_s:g} s")
        if result.exit_code == 255:  # the client's own code: the remote command returns other codes
            raise _login_error(result.stderr.decode("utf-8", "replace"), host, port)
        return parse_probe_output(stdout.getvalue().decode("utf-8", "replace"))

    def _read_banner(self, connection: socket.socket, deadline_s: float) -> str:
        received = b""
        while b"\n" not in received and len(received) < _MAX_BANNER_BYTES:
            left_s = deadline_s - self._monotonic()
            if left_s <= 0:
                raise InstanceUnreachable("it sends no data")
            connection.settimeout(left_s)
            part = connection.recv(_MAX_BANNER_BYTES)
            if not part:
                raise InstanceUnreachable("it closes the connection")
            received += part
        banner = clean(received.split(b"\n")[0].decode("ascii", "replace").strip())
        if not banner.startswith("SSH-"):
            raise InstanceUnreachable(f"not an SSH server: it sends {banner[:40]!r}")
        return banner

    def _run(self, argv: list[str], stdout: BytesIO) -> BoundedResult:
        try:
            return run_bounded(argv, stdout, timeout_s=self._measure_timeout_s, max_bytes=_MAX_OUTPUT_BYTES)
        except OSError as error:
            raise LoginRefused(f"cannot run {self._client}: {error.strerror}") from error


def parse_probe_output(output: str) -> MeasuredInstance:
    """Parse the output of the fixed command. One unreadable GPU makes all GPUs unknown, never fewer."""
    gpus: list[tuple[str, float] | None] = []
    bits: list[float] = []
    for line in output.splitlines():
        kind, _, rest = line.partition(",")
        name, _, number = rest.rpartition(",")
        value = _number(number)
        if kind == "gpu":
            gpus.append(None if value is None or not name else (clean(name.strip()), value))
        elif kind == "bps" and name == "200" and value is not None:
            bits.append(value * 8)
    readable = tuple(gpu for gpu in gpus if gpu is not None)
    return MeasuredInstance(
        gpus=readable if len(readable) == len(gpus) else (), download_mbps=sum(bits) / 1e6 if bits else None
    )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number < 1e12 else None


def _check(host: str, port: int, user: str = "root") -> None:
    if not SshAddress(host=host, port=port, user=user).is_usable:
        raise InstanceUnreachable("it has no valid address")


def _login_error(stderr: str, host: str, port: int) -> InstanceUnreachable | LoginRefused:
    error_class = LoginRefused if is_rejection(stderr) else InstanceUnreachable  # before it is cut
    message = clean(" ".join(stderr.split()) or "no connection")
    return error_class(f"{host}:{port}: {message}")
