"""A whole check by hand: arguments, a TOML file, http.client with TLS ready, a typed decode, the difference to the
stored state, changes and an hourly sum stored with SQLAlchemy Core, the watches' cheapest offers printed.

argv: base URL, watches.toml, database.
"""

import argparse
import http.client  # imports ssl, as any client of an https API must
import sys
import time
import tomllib

import msgspec
import sqlalchemy


class Offer(msgspec.Struct, gc=False):
    id: int
    machine_id: int
    gpu_name: str
    num_gpus: int
    gpu_ram: int
    dph_total: float
    min_bid: float
    reliability2: float
    verification: str
    geolocation: str | None


class Answer(msgspec.Struct, gc=False):
    offers: list[Offer]


SCHEMA = """CREATE TABLE IF NOT EXISTS offer (id INTEGER PRIMARY KEY, machine_id INTEGER, gpu_name TEXT,
 num_gpus INTEGER, gpu_ram INTEGER, reliability REAL, verification TEXT, geolocation TEXT, dph INTEGER,
 min_bid INTEGER);
CREATE TABLE IF NOT EXISTS price (offer INTEGER, minute INTEGER, dph INTEGER, min_bid INTEGER);
CREATE TABLE IF NOT EXISTS hourly (gpu TEXT, n INTEGER, hour INTEGER, low INTEGER, sum INTEGER, count INTEGER,
 PRIMARY KEY (gpu, n, hour)) WITHOUT ROWID"""
UPSERT = """INSERT INTO offer VALUES (?,?,?,?,?,?,?,?,?,?)
 ON CONFLICT DO UPDATE SET dph = excluded.dph, min_bid = excluded.min_bid"""
HOURLY = """INSERT INTO hourly VALUES (?,?,?,?,?,?) ON CONFLICT DO UPDATE SET low = min(low, excluded.low),
 sum = sum + excluded.sum, count = count + excluded.count"""

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("watches")
parser.add_argument("database")
args = parser.parse_args()
with open(args.watches, "rb") as file:
    watches = tomllib.load(file)["watch"]

connection = sqlalchemy.create_engine(f"sqlite:///{args.database}").connect()
execute = connection.exec_driver_sql
execute("PRAGMA synchronous=NORMAL")
for statement in SCHEMA.split(";"):
    execute(statement)
last = {row[0]: (row[1], row[2]) for row in execute("SELECT id, dph, min_bid FROM offer WHERE dph IS NOT NULL")}

_, _, host, *prefix = args.url.split("/")
client = http.client.HTTPConnection(host)
client.request("GET", "/".join(["", *prefix, "api/v0/bundles/"]))
offers = msgspec.json.decode(client.getresponse().read(), type=Answer).offers

now = int(time.time())
groups: dict[tuple[str, int], list[int]] = {}
by_gpu: dict[str, list[Offer]] = {}
upserts, prices, seen = [], [], set()
for o in offers:
    dph, bid = round(o.dph_total * 1e6), round(o.min_bid * 1e6)
    seen.add(o.id)
    if last.get(o.id) != (dph, bid):
        upserts.append(
            (
                o.id,
                o.machine_id,
                o.gpu_name,
                o.num_gpus,
                o.gpu_ram,
                o.reliability2,
                o.verification,
                o.geolocation,
                dph,
                bid,
            )
        )
        prices.append((o.id, now // 60, dph, bid))
    groups.setdefault((o.gpu_name, o.num_gpus), []).append(dph)
    by_gpu.setdefault(o.gpu_name, []).append(o)
gone = last.keys() - seen
if upserts:
    execute(UPSERT, upserts)
if gone:
    execute("UPDATE offer SET dph = NULL, min_bid = NULL WHERE id = ?", [(key,) for key in gone])
if prices or gone:
    execute("INSERT INTO price VALUES (?,?,?,?)", prices + [(key, now // 60, None, None) for key in gone])
execute(HOURLY, [(*group, now // 3600, min(p), sum(p), len(p)) for group, p in groups.items()])
connection.commit()

for watch in watches:
    most = watch["max_price"] / 1.2
    found = [
        o
        for o in by_gpu.get(watch["gpu"], ())
        if o.num_gpus == 1 and o.dph_total <= most and o.reliability2 >= watch["min_reliability"]
    ]
    for o in sorted(found, key=lambda o: o.dph_total)[:10]:
        sys.stdout.write(f"{watch['name']}: {o.id} {o.gpu_name} ${o.dph_total:.4f}/h {o.geolocation}\n")
