"""Imports report price files that would make figures too good, and keep list prices separate."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.domain.history.price_rows import COLUMNS
from tests.cli.conftest import Shell

HOURS = 24 * 9


def written(path: Path, *, jump_at: int = 10**6, moves: bool = True, provider: str = "vastai") -> Path:
    """Six H100s over nine days; ten times as expensive from one hour on."""
    lines = [",".join(COLUMNS)]
    for hour in range(HOURS):
        for key in range(6):
            price = (1.5 + key / 10 + (hour % 5) / 50 * moves) * (10 if hour >= jump_at else 1)
            at = f"2026-03-{1 + hour // 24:02}T{hour % 24:02}:00:00Z"
            lines.append(f"{at},{provider},{key}/ondemand,,H100 SXM,1,80,false,{price:.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_family_that_jumps_is_reported(shell: Shell) -> None:
    written(shell.folder / "jump.csv", jump_at=100)
    ran = shell("import", "jump.csv")
    assert ran.code == 0
    assert "all H100 prices of vastai jump at 2026-03-05 04:00:00 UTC: median $1.7" in ran.err.replace(
        "H100 SXM", "H100"
    )
    (jump,) = shell("import", "jump.csv", "--dry-run", "--json").json["files"][0]["jumps"]
    assert jump["after_usd_gpu_hour"] == pytest.approx(10 * jump["before_usd_gpu_hour"], rel=0.1)


def test_a_poll_that_shows_few_offers_is_no_jump(shell: Shell) -> None:
    """Nine cards at 20 dollars and three at 1.5: the last poll lacks the expensive ones."""
    lines = [",".join(COLUMNS)]
    for hour in range(4):
        for key in range(12 if hour < 3 else 3):
            at, price = f"2026-03-01T{hour:02}:00:00Z", 1.5 if key < 3 else 20
            lines.append(f"{at},vastai,{key}/ondemand,,H100 SXM,1,80,false,{price}")
    (shell.folder / "cut.csv").write_text("\n".join(lines) + "\n")
    assert shell("import", "cut.csv", "--json").json["files"][0]["jumps"] == []


def test_a_market_that_moves_is_not_reported(shell: Shell) -> None:
    written(shell.folder / "market.csv")
    ran = shell("import", "market.csv", "--json")
    assert (ran.json["files"][0]["jumps"], ran.json["files"][0]["rate_cards"]) == ([], [])
    assert "jump" not in ran.err


def test_prices_that_never_move_look_like_a_price_list(shell: Shell) -> None:
    written(shell.folder / "card.csv", moves=False)
    ran = shell("import", "card.csv", "--dry-run")
    assert ran.code == 3  # no database yet
    ran = shell("import", "card.csv", "--source", "rate-card")
    assert "vastai, list prices: 1,296 rows, stored separately: show them with --provider vastai:listed" in ran.out
    assert "in a price list" not in ran.err
    history = ["history", "--gpu", "H100", "--since", "all", "--json"]
    assert shell(*history).code == 3  # nothing live
    assert shell(*history, "--provider", "vastai:listed").code == 0
    assert "in a price list" in shell("import", "card.csv").err


def test_a_file_with_both_shows_its_offers_alone(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    live = written(shell.folder / "live.csv").read_text()
    listed = written(shell.folder / "listed.csv", moves=False, provider="vastai:listed").read_text()
    (shell.folder / "both.csv").write_text(live + listed.replace(",1.", ",0.").partition("\n")[2])
    history = ("history", "--gpu", "H100", "--since", "all", "--json", "--data")
    alone, both = shell(*history, "live.csv"), shell(*history, "both.csv")
    assert alone.code == both.code == 0
    assert alone.json == both.json
    assert "its list prices; show them with" in caplog.text


def test_source_and_kind_must_agree(shell: Shell) -> None:
    written(shell.folder / "a.csv")
    ran = shell("import", "a.csv", "--source", "rate-card", "--kind", "live")
    assert (ran.code, ran.out) == (2, "")
    assert "--source rate-card means --kind listed" in ran.err
