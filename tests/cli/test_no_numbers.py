"""Values that Python parses as numbers but no option accepts: NaN, infinity, beyond all limits."""

import pytest
from cli.conftest import Shell

OPTIONS = (
    ("history", "H100", "--under"),
    ("market", "--under"),
    ("advise", "H100", "--under"),
    ("advise", "H100", "--hours"),
    ("db", "prune", "--keep-days"),
)
UNBOUNDED = (
    ("plan", "job", "4x A100 @ 1 for 2h", "--under"),
    ("plan", "buy", "--card-price"),
    ("offers", "--disk-gb"),
)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("argv", OPTIONS + UNBOUNDED)
def test_it_is_refused_in_one_line(shell: Shell, argv: tuple[str, ...], text: str) -> None:
    reported = shell(*argv, text)
    assert (reported.code, reported.out, reported.err.count("\n")) == (2, "", 1)
    assert f"{argv[-1]}: expected a finite number" in reported.err or "Invalid value for '--" in reported.err


@pytest.mark.parametrize("argv", OPTIONS)
def test_so_is_what_no_clock_and_no_balance_can_hold(shell: Shell, argv: tuple[str, ...]) -> None:
    reported = shell(*argv, "1e300")
    assert (reported.code, "1e+300 is not in the range" in reported.err) == (2, True)
