"""A small training in numpy that can be interrupted at any moment: the example job of docs/jobs-runs.md.

A two-layer network learns the product of two numbers. The same steps give the same weights, bit for bit, however often
it was interrupted: batches are drawn by the number of the step, and a checkpoint holds weights, momentum and losses.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

SIZES = (2, 16, 1)
BATCH, RATE, MOMENTUM = 32, 0.05, 0.9


def main() -> None:
    """Train, and write `out/loss.json` and `out/weights.npz`."""
    options = _options()
    state = _resumed() or _begun()
    begun = int(state["step"])
    for step in range(begun, options.steps):
        loss = _one_step(state, step)
        state["losses"] = np.append(state["losses"], loss)
        state["step"] = np.int64(step + 1)
        if (step + 1) % options.every == 0:
            _save(state, Path("ckpt") / f"step-{step + 1:06d}.npz")
        with open("metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step + 1, "total_steps": options.steps, "loss": float(loss)}) + "\n")
        time.sleep(options.pause)
    out = Path("out")
    out.mkdir(exist_ok=True)
    weights = {name: value for name, value in state.items() if name.startswith("w")}
    digest = hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()
    (out / "loss.json").write_text(json.dumps({"losses": state["losses"].tolist(), "weights_sha256": digest}))
    _save(weights, out / "weights.npz")
    print(f"done: {options.steps} steps, loss {state['losses'][-1]:.6f}, from step {begun}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
    return parser.parse_args()


def _begun() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(7)
    state: dict[str, np.ndarray] = {"step": np.int64(0), "losses": np.zeros(0)}
    for number, (rows, columns) in enumerate(pairwise(SIZES)):
        state[f"w{number}"] = draw.normal(0, 0.5, (rows, columns))
        state[f"m{number}"] = np.zeros((rows, columns))
    return state


def _resumed() -> dict[str, np.ndarray] | None:
    path = os.environ.get("GPUWATCH_CHECKPOINT")
    if not path:
        return None
    with np.load(path) as found:
        print(f"resumes {path}", flush=True)
        return {name: found[name] for name in found.files}


def _one_step(state: dict[str, np.ndarray], step: int) -> float:
    draw = np.random.default_rng([11, step])
    given = draw.uniform(-1, 1, (BATCH, 2))
    wanted = given[:, :1] * given[:, 1:]
    hidden = np.tanh(given @ state["w0"])
    error = hidden @ state["w1"] - wanted
    slope = 2 * error / BATCH
    slopes = {"0": given.T @ ((slope @ state["w1"].T) * (1 - hidden**2)), "1": hidden.T @ slope}
    for number, gradient in slopes.items():
        state[f"m{number}"] = MOMENTUM * state[f"m{number}"] - RATE * gradient
        state[f"w{number}"] = state[f"w{number}"] + state[f"m{number}"]
    return float(np.mean(error**2))


def _save(state: dict[str, np.ndarray], path: Path) -> None:
    """Whole or not at all: under a temporary name first."""
    path.parent.mkdir(exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        np.savez(file, **state)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


if __name__ == "__main__":
    main()
