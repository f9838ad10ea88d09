"""The training of `gpuwatch demo --jobs`: sent to the machine unchanged, and run there. Needs only numpy."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

STEPS, RATE = 40, 0.3


def main() -> None:
    """Fit a line, and write `out/loss.json` and `out/weights.npy`."""
    draw = np.random.default_rng(7)
    inputs = draw.normal(size=(256, 4))
    targets = inputs @ np.array([1.0, -2.0, 3.0, 0.5])
    weights = np.zeros(4)
    losses = []
    for step in range(1, STEPS + 1):
        error = inputs @ weights - targets
        weights -= RATE * inputs.T @ error / len(inputs)
        losses.append(float(np.mean(error**2)))
        _report({"step": step, "total_steps": STEPS, "loss": losses[-1]})
        time.sleep(0.05)
    out = Path("out")
    out.mkdir(exist_ok=True)
    (out / "loss.json").write_text(json.dumps(losses))
    np.save(out / "weights.npy", weights)


def _report(values: dict[str, float]) -> None:
    with open("metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")
    if values["step"] % 10 == 0:
        print(f"step {values['step']}/{STEPS}, loss: {values['loss']:.6f}", flush=True)  # noqa: T201 the log of the job


if __name__ == "__main__":
    main()
