"""Writes the quarterly prices that `gpuwatch forecasts trend` fits: `python -m tools.long_prices`.

For each source, rental type and GPU the median price per GPU-hour of a fixed basket: the offers listed in both the
first and the last quarter of the series, each at its median of the quarter. A changing basket would look like a
changing price. From `tests/recorded/price-history`, and the few published prices below.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from statistics import median

from gpuwatch.domain.market.gpu_names import catalog

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "gpuwatch" / "app" / "forecasts" / "long-prices.csv"
_SERIES = ROOT / "tests" / "recorded" / "price-history"
_GCP = "https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator"
_AWS = "https://github.com/aws/karpenter-provider-aws"
_FILES = {
    "aws-ondemand-us-east-1-2022-07_2024-12": _AWS,
    "gcp-weekly-2022-02_2024-12": _GCP,
}
_AWS_TABLE = f"{_AWS}/blob/031e72b6/pkg/providers/pricing/zz_generated.pricing_aws.go"
# Of that table, made 2026-01-19: machine type → USD per hour. A type that is not named here has left the basket.
_AWS_2026 = {
    "p2.xlarge": "0.90", "p2.8xlarge": "7.20", "p2.16xlarge": "14.40",
    "p3.2xlarge": "3.06", "p3.8xlarge": "12.24", "p3.16xlarge": "24.48", "p3dn.24xlarge": "31.212",
    "p4d.24xlarge": "21.957642", "p4de.24xlarge": "27.44705", "p5.48xlarge": "55.04",
    "g3s.xlarge": "0.75", "g3.4xlarge": "1.14", "g3.8xlarge": "2.28", "g3.16xlarge": "4.56",
    "g4dn.xlarge": "0.526", "g4dn.2xlarge": "0.752", "g4dn.4xlarge": "1.204", "g4dn.8xlarge": "2.176",
    "g4dn.12xlarge": "3.912", "g4dn.16xlarge": "4.352", "g4dn.metal": "7.824",
    "g4ad.xlarge": "0.37853", "g4ad.2xlarge": "0.54117", "g4ad.4xlarge": "0.867", "g4ad.8xlarge": "1.734",
    "g4ad.16xlarge": "3.468",
    "g5.xlarge": "1.006", "g5.2xlarge": "1.212", "g5.4xlarge": "1.624", "g5.8xlarge": "2.448",
    "g5.12xlarge": "5.672", "g5.16xlarge": "4.096", "g5.24xlarge": "8.144", "g5.48xlarge": "16.288",
    "g5g.xlarge": "0.42", "g5g.2xlarge": "0.556", "g5g.4xlarge": "0.828", "g5g.8xlarge": "1.372",
    "g5g.16xlarge": "2.744", "g5g.metal": "2.744",
    "g6.xlarge": "0.8048", "g6.2xlarge": "0.9776", "g6.4xlarge": "1.3232", "g6.8xlarge": "2.0144",
    "g6.12xlarge": "4.6016", "g6.16xlarge": "3.3968", "g6.24xlarge": "6.6752", "g6.48xlarge": "13.3504",
    "gr6.4xlarge": "1.5392", "gr6.8xlarge": "2.4464",
    "g6e.xlarge": "1.861", "g6e.2xlarge": "2.24208", "g6e.4xlarge": "3.00424", "g6e.8xlarge": "4.52856",
    "g6e.12xlarge": "10.49264", "g6e.16xlarge": "7.57719", "g6e.24xlarge": "15.06559", "g6e.48xlarge": "30.13118",
}  # fmt: skip
# An index of what one-year contracts cost, by SemiAnalysis, as quoted there.
_INDEX = "https://neighborhoodsf.com/Wikis/Neighborhood+Notes/Published/H100+rental+prices+(%24+per+GPU-hour)"
_PUBLISHED = (
    ("semianalysis", "no", "H100 SXM", "2025Q4", Decimal("1.70"), 1, _INDEX),
    ("semianalysis", "no", "H100 SXM", "2026Q1", Decimal("2.35"), 1, _INDEX),
)
_SOCKETS = {("aws", gpu): "SXM" for gpu in ("A100", "H100", "V100")}  # P3, P4 and P5 machines have SXM boards
_HEAD = """\
# Google Cloud: github.com/Cyclenerd/google-cloud-pricing-cost-calculator, Apache-2.0, (c) Nils Knieling
# AWS: github.com/aws/karpenter-provider-aws, Apache-2.0
# Selected, reshaped and aggregated by quarter: python -m tools.long_prices
source,spot,gpu,quarter,usd_gpu_hour,offers,url
"""
_Rows = dict[str, dict[str, list[Decimal]]]  # offer → quarter → prices of a GPU-hour


def long_prices() -> str:
    """The content of the file."""
    found = list(_PUBLISHED)
    for name, url in _FILES.items():
        for (source, spot, gpu), offers in _read(name).items():
            quarters = sorted({quarter for prices in offers.values() for quarter in prices})
            basket = [prices for prices in offers.values() if {quarters[0], quarters[-1]} <= prices.keys()]
            for quarter in quarters:
                of_quarter = [median(prices[quarter]) for prices in basket if quarter in prices]
                if of_quarter:
                    where = _AWS_TABLE if quarter == "2026Q1" else url
                    found.append((source, spot, gpu, quarter, median(of_quarter), len(of_quarter), where))
    lines = sorted(found, key=lambda row: row[:4])
    return _HEAD + "".join(
        f"{source},{spot},{gpu},{quarter},{round(usd, 6).normalize():f},{offers},{url}\n"
        for source, spot, gpu, quarter, usd, offers, url in lines
    )


def _read(name: str) -> dict[tuple[str, str, str], _Rows]:
    series: dict[tuple[str, str, str], _Rows] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    counts: dict[str, tuple[tuple[str, str, str], int]] = {}
    with gzip.open(_SERIES / f"{name}.csv.gz", "rt", encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            socket = _SOCKETS.get((row["provider"], row["gpu_name_raw"]))
            gpu = catalog().resolve(row["gpu_name_raw"], float(row["gpu_mem_gib"] or 0) or None, socket).name
            key = row["provider"], "yes" if row["spot"] == "true" else "no", gpu
            count = int(row["gpu_count"])
            counts[row["offer_key"]] = key, count
            year, month = row["observed_at"][:4], int(row["observed_at"][5:7])
            series[key][row["offer_key"]][f"{year}Q{(month + 2) // 3}"].append(Decimal(row["price_usd_hour"]) / count)
    for offer, (key, count) in counts.items():
        if (price := _AWS_2026.get(offer.partition("/")[0])) is not None:
            series[key][offer]["2026Q1"].append(Decimal(price) / count)
    return series


if __name__ == "__main__":
    TARGET.write_text(long_prices(), encoding="utf-8")
