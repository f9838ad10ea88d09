"""A tiny model on a real PyTorch, without a GPU. Skipped where it is missing, as in the locked environment."""

from __future__ import annotations

import pytest

from gpuwatch.domain.plan.architectures.transformer_shape import TransformerShape
from gpuwatch.domain.plan.memory_need import lora_params
from gpuwatch.domain.plan.own_rows import SyntheticRun
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.measuring.torch_accelerator import TorchAccelerator
from gpuwatch.measuring.torch_decoder import TorchDecoder
from gpuwatch.ports.measuring import CannotMeasure

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torch.utils.checkpoint")

TINY = TransformerShape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256)
RUN = SyntheticRun(
    shape=TINY, method=TrainingMethod.FULL, precision=Precision.FP32, batch=2, context=32, steps=3
)  # fmt: skip


def test_each_method_trains_what_it_should_and_the_loss_falls() -> None:
    for method, trained in ((TrainingMethod.FULL, TINY.params), (TrainingMethod.LORA, lora_params(TINY, 16, "all"))):
        for recompute in (True, False):
            run = SyntheticRun(
                shape=TINY, method=method, precision=Precision.FP32, batch=2, context=32, steps=3, recompute=recompute
            )  # fmt: skip
            torch.manual_seed(1)
            model = TorchDecoder(torch, "cpu", run, None)
            assert sum(weight.numel() for weight in model.trained) == trained, method
            tokens, optimizer = model.tokens(32), torch.optim.AdamW(model.trained, lr=0.01)
            losses = []
            for _ in range(8):
                loss = model.loss(tokens)
                losses.append(loss.item())
                loss.backward()
                assert all(weight.grad is not None for weight in model.trained), method
                optimizer.step()
                optimizer.zero_grad()
            assert losses[-1] < losses[0], (method, recompute)


def test_decoding_with_caches_writes_what_reading_everything_again_would_write() -> None:
    torch.manual_seed(2)
    model = TorchDecoder(torch, "cpu", RUN, None)
    tokens = model.tokens(8)
    with torch.inference_mode():
        caches = model.caches(12)
        one = model.next_token(tokens, caches, 0)
        two = model.next_token(one, caches, 8)
        again = model.next_token(torch.cat([tokens, one], dim=1), model.caches(12), 0)
    assert torch.equal(two, again)


def test_decoding_is_timed_in_the_middle_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[int] = []
    real = TorchDecoder.next_token

    def noted(self: TorchDecoder, tokens: object, caches: list[tuple[object, object]], at: int) -> object:
        places.append(at)
        return real(self, tokens, caches, at)

    monkeypatch.setattr(TorchDecoder, "next_token", noted)
    TorchAccelerator(torch, "cpu").decode(RUN)
    assert places == [0, 13, 14, 15, 16, 17, 18], "a full prompt for the peak, then around 16 of 32"


def test_steps_are_timed_and_what_cannot_be_measured_says_why() -> None:
    device = TorchAccelerator(torch, "cpu")
    assert len(device.train(RUN).step_s) == len(device.decode(RUN).step_s) == 3
    assert device.facts().torch == torch.__version__
    with pytest.raises(CannotMeasure, match="too short for 40 steps"):
        device.decode(SyntheticRun(**{name: getattr(RUN, name) for name in RUN.__struct_fields__} | {"steps": 40}))
