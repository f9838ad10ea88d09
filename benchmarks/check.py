"""`gpuwatch check` as a whole process, in turn with the marketplace's own client; and the shortest commands.

    python -m benchmarks.check [--sizes 64 2000 10000] [--rounds 15]

Ten watches, results stored, gpuwatch installed from a wheel; a loopback server answers every search with all its
offers: 64, the page of a search, for the figures of docs/performance.md. Before each process the market moves by one
poll interval.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, table
from benchmarks.installed import bench_environment, official_client
from benchmarks.processes import Runs, in_turn, median_ms, ratio
from benchmarks.server import running

PAGE = 64
GOALS_OFFICIAL = {"answer_s": 0.5, "wall_s": 0.75}  # times the marketplace's own client
GOAL_START_S = 0.25
_OFFICIAL = ["search", "offers", "gpu_name=RTX_4090 num_gpus=1 dph<=0.4"]
_WATCHES = [
    ("RTX 4090", 0.36), ("RTX 5090", 0.54), ("RTX 3090", 0.16), ("H100 SXM", 2.2), ("A100 SXM4", 0.75), ("H200", 2.8),
    ("RTX 6000Ada", 0.6), ("L40S", 0.6), ("RTX A6000", 0.42), ("B200", 3.6),
]  # fmt: skip


def settings_toml(url: str, folder: Path) -> str:
    """Return settings with ten watches and a store in this folder."""
    watches = "".join(
        f'[[watch]]\nname = "cheap {gpu}"\ngpu = "{gpu}"\nmax_price = {price}\nmin_reliability = 0.98\n\n'
        for gpu, price in _WATCHES
    )
    return (
        f'database_url = "sqlite:///{folder}/gpuwatch.db"\n\n'
        f'[providers.vastai]\nbase_url = "{url}"\nsearch_interval = "0s"\nrows_per_day = 0\n\n{watches}'
    )


def figures(sizes: Sequence[int] = (PAGE,), rounds: int = 10) -> list[Figure]:
    """Return the figures of both parts."""
    bench, official = bench_environment(), official_client()
    if official is None:
        raise SystemExit("the official client is missing: make .venv-official/.stamp")
    found = []
    with tempfile.TemporaryDirectory() as folder, running(list(sizes)) as control:
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLUMNS": "120"}
        for size in sizes:
            place = Path(folder, str(size))
            place.mkdir()
            (place / "gpuwatch.toml").write_text(settings_toml(control.url(size), place))
            commands = {
                "gpuwatch": [str(bench / "gpuwatch"), "check", "--config", str(place / "gpuwatch.toml")],
                "vastai": [str(official), "--url", control.url(size), *_OFFICIAL],
            }
            move = partial(control, "evolve", size)
            runs = in_turn(commands, rounds, environment | {"VAST_API_KEY": "x"}, folder, before=move)
            found += _against_official(runs, size)
        commands = {f"gpuwatch {option}": [str(bench / "gpuwatch"), option] for option in ("--version", "--help")}
        starts = in_turn(commands, 2 * rounds, environment, folder)
    for name, mine in starts.items():
        took_s = median_ms(mine, "wall_s") / 1e3
        found.append(Figure(name=f"`{name}`", goal=GOAL_START_S, measured=took_s, unit=" s", sample=f"n = {len(mine)}"))
    return found


def _against_official(runs: Runs, size: int) -> list[Figure]:
    found = []
    for what, goal in GOALS_OFFICIAL.items():
        part = "answer printed" if what == "answer_s" else "whole process"
        ours, theirs = (median_ms(runs[name], what) for name in ("gpuwatch", "vastai"))
        found.append(
            Figure(
                name=f"`gpuwatch check`, {size:,} offers, {part} / `vastai search offers`",
                goal=goal,
                measured=ratio(runs, "gpuwatch", "vastai", what),
                unit=" ×",
                sample=f"{ours:.0f} · {theirs:.0f} ms, n = {len(runs['vastai'])}",
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[PAGE, 2000, 10_000])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(table(figures(args.sizes, args.rounds)))


if __name__ == "__main__":
    main()
