"""The GPU of this machine through PyTorch, which is found by import and is no dependency of gpuwatch."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from gpuwatch.domain.plan.own_rows import SyntheticRun
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.measuring.torch_decoder import DTYPES, Apply, TorchDecoder
from gpuwatch.ports.measuring import CannotMeasure, DeviceFacts, MeasuredSteps, RunOutOfMemory

_WARM_UP: Final = 3  # steps: the first ones choose kernels and fill the allocator
_GIB: Final = 2**30
_DRIVER: Final = Path("/proc/driver/nvidia/version")
_MASTER_LR: Final = 1e-5


class TorchAccelerator:
    """PyTorch on one device.

    Args:
        torch: the module.
        device: "cuda", or "cpu" for tests.
        seconds: a clock.
    """

    def __init__(self, torch: Any, device: str = "cuda", seconds: Callable[[], float] = time.perf_counter) -> None:
        self._torch, self._device, self._seconds = torch, device, seconds

    def facts(self) -> DeviceFacts:
        """What it is."""
        torch, name, memory_gib = self._torch, "CPU", 0.0
        if self._device == "cuda":
            properties = torch.cuda.get_device_properties(0)
            name, memory_gib = str(properties.name), properties.total_memory / _GIB
        return DeviceFacts(
            gpu=name,
            memory_gib=memory_gib,
            torch=str(torch.__version__),
            cuda=str(torch.version.cuda or torch.version.hip or ""),
            driver=_driver(),
        )

    def train(self, run: SyntheticRun) -> MeasuredSteps:
        """Steps of training with random weights and tokens. Raises CannotMeasure, RunOutOfMemory."""
        with self._memory() as peak:
            model = self._model(run)
            update = self._optimizer(model, run)

            def step() -> None:
                model.loss(model.tokens(run.context)).backward()
                update()

            return self._timed(step, run.steps, peak)

    def decode(self, run: SyntheticRun) -> MeasuredSteps:
        """Steps of decoding in the middle of `context` tokens. Raises CannotMeasure, RunOutOfMemory.

        The caches of a whole job are half full on average, which is what plans count; the peak is of a full prompt.
        """
        prompt = run.context - run.steps - _WARM_UP
        if prompt < 1:
            raise CannotMeasure(f"a context of {run.context} tokens is too short for {run.steps} steps of decoding")
        with self._memory() as peak, self._torch.inference_mode():
            model = self._model(run)
            caches = model.caches(run.context)
            now, at = model.next_token(model.tokens(prompt), caches, 0), (prompt + 1) // 2

            def step() -> None:
                nonlocal now, at
                now, at = model.next_token(now, caches, at), at + 1

            return self._timed(step, run.steps, peak)

    def _model(self, run: SyntheticRun) -> TorchDecoder:
        if run.precision not in DTYPES:
            known = ", ".join(DTYPES)
            raise CannotMeasure(f"PyTorch alone does not compute in {run.precision.value}: use one of {known}")
        self._torch.backends.cuda.matmul.allow_tf32 = run.precision is Precision.FP32
        self._torch.manual_seed(0)
        return TorchDecoder(self._torch, self._device, run, self._quantiser())

    def _quantiser(self) -> Callable[[Any], Apply] | None:
        """NF4 with doubly quantised constants, as in QLoRA (2023); None: bitsandbytes is not installed."""
        try:
            bits = import_module("bitsandbytes")
        except ImportError:
            return None

        def quantise(weight: Any) -> Apply:
            held, state = bits.functional.quantize_4bit(weight, compress_statistics=True, quant_type="nf4")
            return lambda x: bits.matmul_4bit(x, held.t(), quant_state=state)

        return quantise

    def _optimizer(self, model: TorchDecoder, run: SyntheticRun) -> Callable[[], None]:
        """AdamW on 32-bit copies of 16-bit weights, one weight at a time, or on the adapters themselves."""
        adamw = self._torch.optim.AdamW
        is_copied = run.method is TrainingMethod.FULL and run.precision is not Precision.FP32
        copies = [weight.detach().float() if is_copied else weight for weight in model.trained]
        optimizers = [adamw([copy], lr=_MASTER_LR) for copy in copies]

        def update() -> None:
            for weight, copy, optimizer in zip(model.trained, copies, optimizers, strict=True):
                if is_copied:
                    copy.grad = weight.grad.float()
                optimizer.step()
                if is_copied:
                    weight.data.copy_(copy)
                    copy.grad = None
                weight.grad = None

        return update

    def _timed(self, step: Callable[[], None], steps: int, peak: Callable[[], int | None]) -> MeasuredSteps:
        for _ in range(_WARM_UP):
            step()
        found = []
        for _ in range(steps):
            self._wait()
            began = self._seconds()
            step()
            self._wait()
            found.append(self._seconds() - began)
        return MeasuredSteps(step_s=tuple(found), peak_bytes=peak())

    def _wait(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    @contextmanager
    def _memory(self) -> Iterator[Callable[[], int | None]]:
        """Count the memory from here on; afterwards all of it is free again."""
        cuda = self._torch.cuda
        if self._device == "cuda":
            cuda.reset_peak_memory_stats()
        try:
            yield lambda: int(cuda.max_memory_allocated()) if self._device == "cuda" else None
        except RuntimeError as error:  # of which torch.OutOfMemoryError is one
            if "out of memory" in str(error).lower():
                raise RunOutOfMemory("out of GPU memory") from None
            raise CannotMeasure(" ".join(str(error).split())[:300]) from error
        finally:
            gc.collect()
            if self._device == "cuda":
                cuda.empty_cache()


def find_accelerator() -> TorchAccelerator:
    """The GPU of this machine. Raises CannotMeasure: PyTorch or a GPU is missing."""
    try:
        torch = import_module("torch")
        import_module("torch.utils.checkpoint")
    except ImportError:
        raise CannotMeasure("PyTorch is not installed beside gpuwatch: install it as pytorch.org says") from None
    if not torch.cuda.is_available():
        raise CannotMeasure(f"PyTorch {torch.__version__} finds no GPU on this machine")
    return TorchAccelerator(torch)


def _driver() -> str:
    try:
        found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", _DRIVER.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""
