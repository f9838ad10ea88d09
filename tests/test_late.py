"""Collecting the tests loads little: a library that few tests need is loaded only by the worker that runs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.checkout import ROOT
from tests.late import LateModule

LARGE = ("asyncssh", "boto3", "botocore", "moto", "onnx", "onnxruntime", "sklearn", "tokenizers")
HOLDERS = (
    "tests.dataset.minilm_ranges", "tests.dataset.test_embedding", "tests.dataset.tiny_models",
    "tests.emulator.test_emulator_aws", "tests.providers.aws.replay", "tests.providers.aws.test_aws_moto",
    "tests.ssh_server",
)  # fmt: skip


def test_collecting_loads_no_large_library() -> None:
    code = (
        "import sys\n"
        + "".join(f"import {name}\n" for name in HOLDERS)
        + "".join(f"for found in list(vars(sys.modules[{name!r}]).values()): getattr(found, '__test__', 0)\n"
                  for name in HOLDERS)
        + f"print([name for name in {LARGE} if name in sys.modules])"
    )  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_a_late_module_is_the_module() -> None:
    late = LateModule("json")
    assert late.loads("[1]") == [1]
    with pytest.raises(AttributeError):
        late.no_such_name  # noqa: B018
