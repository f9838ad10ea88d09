"""What the conformance suites need to test the Verda adapter."""

from __future__ import annotations

from gpuwatch.testing import Bench
from tests.clouds.verda import CLIENT_ID, SSH_KEY, Verda

BENCH = Bench(
    name="verda",
    place=Verda,
    gpu="H100 SXM",
    options={"client_id": CLIENT_ID, "ssh_key": SSH_KEY},
    sell_out=Verda.sell_out,
    creates=r"^POST /instances ",
    ends=r"^PUT /instances ",
)
