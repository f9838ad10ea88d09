"""The market page by hand: reads the rows of a month with raw sqlite3, and prints the lowest price of each GPU.

argv: database, the end of the month in seconds since 1970.
"""

import sqlite3
import sys

until_s = int(sys.argv[2])
since_s = until_s - 30 * 86_400
database = sqlite3.connect(sys.argv[1])
segments = database.execute(
    "SELECT id, gpu, gpu_count FROM segment WHERE gpu_count > 0 AND provider <> '' AND spot = 0"
).fetchall()
lows: dict[str, float] = {}
hours: dict[str, list[int]] = {}
for number, gpu, count in segments:
    rows = database.execute(
        "SELECT hour, min_microusd FROM hourly WHERE segment_id = ? AND hour >= ?", (number, since_s // 3600)
    ).fetchall()
    hours.setdefault(gpu, []).extend(price for _, price in rows)
    for _, _, to_s, price, _ in database.execute(
        "SELECT s.id, p.seen_from_s, p.seen_to_s, p.machine_microusd_hour, p.disk_microusd_gb_month FROM series s"
        " JOIN price_interval p ON p.series_id = s.id WHERE s.segment_id = ? AND p.seen_from_s < ?"
        " AND (p.seen_to_s IS NULL OR p.seen_to_s >= ?)",
        (number, until_s, since_s),
    ).fetchall():
        if to_s is None:
            lows[gpu] = min(lows.get(gpu, price / count), price / count)
for gpu, low in sorted(lows.items()):
    sys.stdout.write(f"{gpu}  {low / 1e6:.4f}  {min(hours[gpu]) / 1e6:.4f}\n")
