"""A job file and the definition that the store keeps of it, also one that an older gpuwatch wrote."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.settings.validate import read_job_file

FILE = """
name = "full"
image = "a/b:1"
setup = "pip install x"
command = "python train.py"
env = { A = "1", B = { from_env = "TOKEN" } }
inputs = ["./data", { source = "s3://b/c", target = "/w" }]
results = ["out/*", { source = "log", target = "logs" }]
checkpoint = { path = "ckpt", every = "10m", keep = 3, resume = "python r.py", store = "s3://bucket/ck" }
pilot = "1%"
nodes = 1
limit = { max_price = 2.5, max_usd = 60, max_usd_hour = 5 }
hours = "18-30"
max_runtime = "40h"
deadline = "2d"
active = ["22:00-08:00"]
priority = 3
retries = 1
depends_on = ["x"]
require = ["a"]
action = "ask"
share_instance = false
keep_on_failure = "1h"
[resources]
gpu = "H100 SXM"
gpu_count = 2
spot = "any"
disk_gb = 100
min_reliability = 0.95
any = ["reliability >= 0.9"]
"""


def test_a_definition_that_was_stored_before_its_keys_were_declared_on_it_reads_back(tmp_path: Path) -> None:
    """Written by the release 0.1 for this file; the folder apart."""
    (tmp_path / "full.toml").write_text(FILE)
    stored = Path(__file__).with_name("stored_definition.json").read_bytes()
    before = msgspec.json.decode(stored, type=JobDefinition)
    now = msgspec.structs.replace(read_job_file(tmp_path / "full.toml"), folder=".")
    assert before == now
    assert msgspec.json.decode(msgspec.json.encode(now), type=JobDefinition) == now
