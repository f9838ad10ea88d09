"""What the conformance suites need to test the Lambda adapter."""

from __future__ import annotations

from gpuwatch.testing import Bench
from tests.clouds.lambda_cloud import LambdaCloud

BENCH = Bench(
    name="lambda",
    place=LambdaCloud,
    gpu="H100 SXM",
    options={"ssh_key": "my-key"},
    sell_out=LambdaCloud.sell_out,
    creates=r"^POST /instance-operations/launch ",
    ends=r"^POST /instance-operations/terminate ",
)
