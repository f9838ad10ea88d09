"""`gpuwatch plan dataset`: the cost of reading and of comparing, the memory, and what comparing misses.

    python -m benchmarks.dataset [--rows 200000] [--texts 600]

Reading is measured with the real MiniLM on generated texts. The rest uses seeded random vectors, which are cheap: 3 %
of the rows are copies with some noise, so that their cosine is between 0.95 and 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpuwatch.dataset.audit import Audit, AuditModels, RemovalRules, audit_file
from gpuwatch.dataset.embedding import Embedding, Vectors, open_embedder
from gpuwatch.dataset.filtering import write_kept
from gpuwatch.dataset.onnx_models import TokenCounter, find_model
from gpuwatch.dataset.scan import NO_ROW, detect_fields
from gpuwatch.dataset.work_folder import open_work_folder

WIDTH, NEAR = 384, 0.95
WORDS = [
    f"{one}{two}{end}" for one in ("ta", "ro", "mi", "ke", "su") for two in ("lan", "ver", "ton") for end in ("", "s")
]


class Drawn:
    """Replaces the model: returns topics, and near copies of the row that the text names."""

    name, digest, dimensions = "drawn", "drawn", WIDTH

    def __init__(self, topics: int = 200) -> None:
        self._topics = np.random.default_rng(1).normal(size=(topics, WIDTH))

    def vectors(self, texts: Sequence[str]) -> Embedding:
        found = np.empty((len(texts), WIDTH), np.float32)
        for place, text in enumerate(texts):
            number, copies = (int(word) for word in text.split(" ", 2)[:2])
            found[place] = self._of(copies)
            if number != copies:
                found[place] += np.random.default_rng(number).normal(0, 0.23 / np.sqrt(WIDTH), WIDTH)
        nothing = [False] * len(texts)
        return Embedding(found / np.linalg.norm(found, axis=1, keepdims=True), nothing, nothing)

    def _of(self, number: int) -> Vectors:
        draw = np.random.default_rng(number)
        vector = self._topics[draw.integers(len(self._topics))] + draw.normal(0, 1.2, WIDTH)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


def reading(count: int) -> None:
    """Measure texts with the real model."""
    draw = random.Random(1)
    for words in (12, 60, 200):
        texts = [" ".join(draw.choices(WORDS, k=words)) for _ in range(count * 12 // words)]
        for threads in sorted({1, len(os.sched_getaffinity(0))}):
            embedder = open_embedder(None, "onnx", threads)
            began = time.perf_counter()
            embedder.vectors(texts)
            took = time.perf_counter() - began
            print(f"texts of {words:3} words, {threads} thread(s): {len(texts) / took:7.1f} rows/s")


def written(path: Path, rows: int) -> int:
    """Write the file; return its number of near copies."""
    draw, copies = random.Random(2), 0
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            copied = draw.randrange(number) if number and draw.random() < 0.03 else number
            copies += copied != number
            file.write(json.dumps({"text": f"{number} {copied} " + " ".join(draw.choices(WORDS, k=60))}) + "\n")
    return copies


def whole(folder: Path, rows: int) -> Audit:
    """Measure an audit and a filter of this number of rows."""
    path = folder / "rows.jsonl"
    copies = written(path, rows)
    models = AuditModels(embedder=Drawn(), counter=TokenCounter(find_model(None).tokenizer, estimate=True))
    spent: dict[str, float] = {}
    last = time.perf_counter()

    def report(what: str, _done: int, _all: int) -> None:
        nonlocal last
        now = time.perf_counter()
        spent[what] = spent.get(what, 0.0) + now - last
        last = now

    with open_work_folder(folder / "work") as work:
        done = audit_file(path, detect_fields(path, ()), RemovalRules(near=NEAR), models, work, report)
    size, began = path.stat().st_size / 1e6, time.perf_counter()
    write_kept(done, folder / "kept.jsonl")
    took = time.perf_counter() - began
    # the first call of a stage ends the previous one: "grouping" is reported when it begins
    print(f"{rows:,} rows, {size:.0f} MB: read without the model {spent['reading']:.1f} s,")
    print(f"  grouped and compared {spent['grouping'] + spent.get('comparing', 0):.1f} s, copied {took:.1f} s")
    print(f"  near copies found: {int((done.near != NO_ROW).sum()):,} of {copies:,}; clusters: {done.clusters.method}")
    print(f"  most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
    return done


def missed(done: Audit, rows: int) -> None:
    """Compare with all pairs of the first rows, in any clusters."""
    vectors = np.asarray(done.scanned.vectors[:rows])
    both = apart = 0
    for start in range(0, rows, 2_000):
        alike = np.triu(vectors[start : start + 2_000] @ vectors[start:].T, 1) >= NEAR
        pairs = np.argwhere(alike) + start
        both += len(pairs)
        apart += int((done.clusters.labels[pairs[:, 0]] != done.clusters.labels[pairs[:, 1]]).sum())
    print(f"pairs of the first {rows:,} rows with cosine ≥ {NEAR:g}: {both:,}; in different clusters: {apart:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--texts", type=int, default=600)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as folder:
        missed(whole(Path(folder), args.rows), min(args.rows, 40_000))
    reading(args.texts)


if __name__ == "__main__":
    main()
