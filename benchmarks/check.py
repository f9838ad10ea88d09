"""`gpuwatch check` as a whole process, against hand-written floors and the marketplace's own client, in turn.

    python -m benchmarks.check [--sizes 64 2000 10000] [--rounds 15]

Ten watches, results stored, gpuwatch installed from a wheel; a loopback server answers every search with all its
offers. Before each process the market moves by one poll interval.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.installed import bench_environment, official_client
from benchmarks.processes import Runs, in_turn, median_ms, ratio
from benchmarks.server import running

GOAL_ANSWER, GOAL_WHOLE, GOAL_VERSION, GOAL_HELP = 1.3, 1.15, 2.0, 3.0
GOALS_OFFICIAL = {"answer_s": 0.5, "wall_s": 0.75}
_FLOORS = Path(__file__).parent / "floors"
_OFFICIAL = ["search", "offers", "gpu_name=RTX_4090 num_gpus=1 dph<=0.4"]
_WATCHES = [
    ("RTX 4090", 0.36), ("RTX 5090", 0.54), ("RTX 3090", 0.16), ("H100 SXM", 2.2), ("A100 SXM4", 0.75), ("H200", 2.8),
    ("RTX 6000Ada", 0.6), ("L40S", 0.6), ("RTX A6000", 0.42), ("B200", 3.6),
]  # fmt: skip


def watches_toml() -> str:
    return "".join(
        f'[[watch]]\nname = "cheap {gpu}"\ngpu = "{gpu}"\nmax_price = {price}\nmin_reliability = 0.98\n\n'
        for gpu, price in _WATCHES
    )


def settings_toml(url: str, folder: Path) -> str:
    return (
        f'database_url = "sqlite:///{folder}/gpuwatch.db"\n\n'
        f'[providers.vastai]\nbase_url = "{url}"\nsearch_interval = "0s"\nrows_per_day = 0\n\n{watches_toml()}'
    )


def environment(folder: Path) -> dict[str, str]:
    """Return an environment with only PATH of this process, and its own home folder."""
    return {"HOME": str(folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLUMNS": "120"}


def checks(bench: Path, url: str, folder: Path, rounds: int, move: object) -> Runs:
    """Return all commands for one size."""
    (folder / "watches.toml").write_text(watches_toml())
    (folder / "gpuwatch.toml").write_text(settings_toml(url, folder))
    python, given = str(bench / "python"), [url, str(folder / "watches.toml")]
    ours = [str(bench / "gpuwatch"), "check", "--config", str(folder / "gpuwatch.toml")]
    commands = {
        "gpuwatch check": ours,
        "gpuwatch check --json": [*ours, "--json"],
        "bare httpx + msgspec": [python, str(_FLOORS / "bare_answer.py"), *given],
        "whole check by hand, Core": [python, str(_FLOORS / "whole_check.py"), *given, str(folder / "floor.db")],
    }
    if (official := official_client()) is not None:
        commands["vastai search offers"] = [str(official), "--url", url, *_OFFICIAL]
    assert callable(move)
    return in_turn(commands, rounds, environment(folder) | {"VAST_API_KEY": "x"}, str(folder), before=move)


def starts(bench: Path, folder: Path, rounds: int) -> Runs:
    """Prepare everything before the measurement."""
    gpuwatch = str(bench / "gpuwatch")
    commands = {
        "python -c pass": [str(bench / "python"), "-c", "pass"],
        "gpuwatch --version": [gpuwatch, "--version"],
        "gpuwatch --help": [gpuwatch, "--help"],
    }
    return in_turn(commands, rounds, environment(folder), str(folder))


def reported(runs: Runs, size: int) -> None:
    print(f"\n{size} offers")
    for name, mine in runs.items():
        peak_mb = sorted(run.peak_mb for run in mine)[len(mine) // 2]
        print(f"  {name:26} answer {median_ms(mine, 'answer_s'):6.0f} ms   process {median_ms(mine, 'wall_s'):6.0f} ms"
              f"   cpu {median_ms(mine, 'cpu_s'):6.0f} ms   peak {peak_mb:4.0f} MB")  # fmt: skip
    for name in ("gpuwatch check", "gpuwatch check --json"):
        answer = ratio(runs, name, "bare httpx + msgspec", "answer_s")
        whole = ratio(runs, name, "whole check by hand, Core", "wall_s")
        line = f"  {name}: answer {answer:.2f} × bare (goal ≤ {GOAL_ANSWER}), "
        line += f"process {whole:.2f} × by hand (≤ {GOAL_WHOLE})"
        if "vastai search offers" in runs:
            for what, goal in GOALS_OFFICIAL.items():
                official = ratio(runs, name, "vastai search offers", what)
                line += f", {'answer' if what == 'answer_s' else 'process'} {official:.2f} × vastai (≤ {goal})"
        print(line, flush=True)


def report(sizes: list[int], rounds: int) -> None:
    bench = bench_environment()
    if official_client() is None:
        print("the official client is left out: there is no .venv-official (make test makes it)")
    with tempfile.TemporaryDirectory() as folder, running(sizes) as control:
        runs = starts(bench, Path(folder), rounds * 2)
        for name, goal in (("gpuwatch --version", GOAL_VERSION), ("gpuwatch --help", GOAL_HELP)):
            wall, cpu = (ratio(runs, name, "python -c pass", what) for what in ("wall_s", "cpu_s"))
            took_ms = median_ms(runs[name], "wall_s")
            print(f"{name:19} {took_ms:5.0f} ms, {wall:.2f} × python -c pass (processor {cpu:.2f} ×); goal ≤ {goal}")
        for size in sizes:
            place = Path(folder, str(size))
            place.mkdir()
            move = lambda size=size: control("evolve", size)  # noqa: E731
            reported(checks(bench, control.url(size), place, rounds, move), size)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 2000, 10_000])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    report(args.sizes, args.rounds)


if __name__ == "__main__":
    main()
