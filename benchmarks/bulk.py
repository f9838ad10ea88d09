"""Imports a million price rows, imports them again, and backtests; also rows per second of each stage of `dataset`.

    python -m benchmarks.bulk [--rows 1000000] [--texts 200000] [--megabytes 1000] [--only prices|dataset|file]

Prints CPU seconds (user and system, with child processes), which are valid on a busy machine, unlike wall time. The
rows are a thousand offers at half-hourly polls; a price changes at every tenth poll. The texts have 90 synthetic
words. One process audits the file as `gpuwatch plan dataset audit` does; 3 % of its rows are copies, and 3 % differ
from another row in one word.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np

from gpuwatch.dataset.audit import AuditModels, AuditPlan, RemovalRules, audit_in_stages
from gpuwatch.dataset.cheap_stages import exact_records, sketch_lines
from gpuwatch.dataset.embedding import open_embedder
from gpuwatch.dataset.onnx_models import TokenCounter, find_model
from gpuwatch.dataset.scan import NO_ROW, detect_fields, similar_wording
from gpuwatch.dataset.text_rows import FieldSelection
from gpuwatch.dataset.work_folder import open_work_folder
from gpuwatch.domain.history.price_rows import COLUMNS

MODELS = (("H100 SXM", 80), ("RTX 4090", 24), ("A100 SXM4", 80), ("RTX 3090", 24), ("L40S", 48), ("Tesla V100", 16))
SAMPLE = 10_000  # rows that the model reads, as by default
_BLOCK = 8_192
_BOX_PROCESSORS, _BOX_BYTES = 16, 50e9  # the sources' machine and data set


def write_prices(path: Path, rows: int) -> None:
    """Return a market with this number of rows."""
    draw = random.Random(7)
    offers = []
    for number in range(1000):
        model, memory = draw.choice(MODELS)
        spot = draw.random() < 0.4
        cells = f'{number}/{"spot" if spot else "ondemand"},"Utah, US",{model},{draw.choice((1, 2, 4, 8))},{memory}'
        offers.append([f"{cells},{'true' if spot else 'false'}", draw.uniform(0.2, 4), True])
    at, written = datetime(2026, 1, 1, tzinfo=UTC), 0
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(COLUMNS) + "\n")
        while written < rows:
            for offer in offers:
                offer[2] = offer[2] != (draw.random() < 0.02)
                offer[1] *= draw.uniform(0.95, 1.05) if draw.random() < 0.1 else 1
                if offer[2] and written < rows:
                    file.write(f"{at:%Y-%m-%dT%H:%M:%SZ},vastai,{offer[0]},{offer[1]:.6f}\n")
                    written += 1
            at += timedelta(minutes=30)


def price_seconds(rows: int) -> dict[str, float]:
    """Return the CPU seconds of each command on a file of this number of rows."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as name:
        folder = Path(name)
        write_prices(folder / "rows.csv", rows)
        backtest = ["backtest", "--gpu", "H100", "--max-price", "0.5", "--since", "all"]
        commands = {
            "import": ["import", "rows.csv"],
            "import again": ["import", "rows.csv"],
            "backtest, store": backtest,
            "backtest, file": [*backtest, "--data", "rows.csv"],
        }
        return {what: _command_seconds(folder, command) for what, command in commands.items()}


def _command_seconds(folder: Path, command: list[str]) -> float:
    home = {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    paths = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "gpuwatch", *command],
        cwd=folder,
        env=os.environ | home | paths,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def stage_rates(texts: int, model_texts: int = 300) -> dict[str, tuple[float, float]]:
    """Return rows and bytes per CPU second of one processor, by stage."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(20_000)]
    lines = [msgspec.json.encode({"text": " ".join(draw.choices(words, k=90))}) + b"\n" for _ in range(texts)]
    blocks = [lines[start : start + _BLOCK] for start in range(0, texts, _BLOCK)]
    size = sum(map(len, lines)) / texts
    reading, none = FieldSelection(fields=("text",), guessed=False), np.full(texts, NO_ROW)
    sketches: list[np.ndarray] = []  # type: ignore[type-arg]
    stages: dict[str, Callable[[], object]] = {
        "equal texts": lambda: [exact_records(block, reading) for block in blocks],
        "wording: sketches": lambda: sketches.extend(sketch_lines(block, reading) for block in blocks),
        "wording: comparison": lambda: similar_wording(np.concatenate(sketches), none, none.astype(np.uint64)),
    }
    found = {}
    for stage, work in stages.items():
        rate = texts / _cpu_seconds(work)
        found[stage] = (rate, rate * size)
    embedder = open_embedder(None, "onnx-int8", 1)
    words = ["the", "price", "of", "a", "card", "is", "what", "a", "market", "pays", "for", "it"] * 11
    common = " ".join(words[:126])  # a token each, plus two special ones: 128
    rate = model_texts / _cpu_seconds(lambda: embedder.vectors([common] * model_texts))
    return found | {"model, 128 tokens": (rate, rate * len(common))}


def file_seconds(megabytes: int) -> tuple[dict[str, float], dict[str, int]]:
    """Return the CPU seconds of each stage of an audit of a file of that size, and its results."""
    spent: dict[str, float] = {}
    last = time.process_time()

    def passed(stage: str, _done: int, _all: int) -> None:
        nonlocal last
        now = time.process_time()
        spent[stage], last = spent.get(stage, 0.0) + now - last, now

    with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as name:
        path = Path(name) / "rows.jsonl"
        copies, near = write_texts(path, megabytes * 10**6)
        models = AuditModels(
            embedder=open_embedder(None, "onnx-int8", 1),
            counter=TokenCounter(find_model(None).tokenizer, estimate=True),
        )
        plan = AuditPlan(
            reading=detect_fields(path, ()), rules=RemovalRules(near=0.95), models=models, sample=SAMPLE, threads=1
        )
        with open_work_folder(Path(name) / "work") as folder:
            last = time.process_time()
            done = audit_in_stages(path, plan, folder, passed)
            passed("the rest", 0, 0)
        found = {
            "rows": len(done.exact),
            "equal texts": int((done.exact != NO_ROW).sum()),
            "of": copies,
            "worded alike": int((done.wording != NO_ROW).sum()),
            "of nearly equal": near,
        }
    return spent, found


def write_texts(path: Path, size: int) -> tuple[int, int]:
    """Write a data set of that size; return how many rows are copies, and how many differ in one word."""
    draw, written, copies, near = random.Random(3), 0, 0, 0
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(20_000)]
    kept: list[list[str]] = []
    with path.open("wb") as file:
        while written < size:
            lot = draw.random()
            text = list(draw.choice(kept)) if kept and lot < 0.06 else draw.choices(words, k=90)
            if kept and lot < 0.03:
                copies += 1
            elif kept and lot < 0.06:
                text[draw.randrange(90)] = draw.choice(words)
                near += 1
            elif len(kept) < 10_000:
                kept.append(text)
            written += file.write(msgspec.json.encode({"text": " ".join(text)}) + b"\n")
    return copies, near


def _cpu_seconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def hours_for_the_box(rates: dict[str, tuple[float, float]], sample: int = SAMPLE) -> float:
    """Extrapolate: all stages over 50 GB on 16 processors; the comparison runs on one, the model on a sample."""
    exact, sketches, comparison, model = rates.values()
    parallel = _BOX_BYTES / exact[1] + _BOX_BYTES / sketches[1] + sample / model[0]
    return (parallel / _BOX_PROCESSORS + _BOX_BYTES / comparison[1]) / 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--only", choices=("prices", "dataset", "file"))
    args = parser.parse_args()
    if args.only in {None, "prices"}:
        print(f"{args.rows:,} price rows, CPU seconds:")
        for what, seconds in price_seconds(args.rows).items():
            print(f"  {what:16} {seconds:6.2f}", flush=True)
    if args.only in {None, "dataset"}:
        rates = stage_rates(args.texts)
        print(f"{args.texts:,} texts, for each CPU second of one processor:")
        for stage, (rows, size) in rates.items():
            print(f"  {stage:20} {rows:11,.0f} rows {size / 1e6:8.1f} MB")
        print(f"50 GB on 16 processors, without the disk, extrapolated: {hours_for_the_box(rates):.2f} h")
    if args.only in {None, "file"}:
        spent, counts = file_seconds(args.megabytes)
        print(f"a file of {args.megabytes:,} MB:", ", ".join(f"{what} {count:,}" for what, count in counts.items()))
        for stage, seconds in spent.items():
            print(f"  {stage:20} {seconds:7.1f} s of one processor, {args.megabytes / max(seconds, 0.01):9.1f} MB/s")
        print(f"  most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
