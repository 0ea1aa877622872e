"""A day of a taxi service on a running fleet: see README.md beside this file."""

import argparse
import asyncio
import json
import time
from pathlib import Path

from trimtab.errors import TrimtabError
from trimtab.fleet.operator import Operator
from trimtab.fleet.sdk.client_file import fleet_home
from trimtab.lab.taxi_service import TaxiService
from trimtab.lab.worlds.taxi import activity, generated, read_trips

STEPS = 240  # moments of a day

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--trips", type=Path, help="taxi trips as in the DEBS 2015 Grand Challenge [default: generated]")
parser.add_argument("--regions", type=int, default=12, help="busiest regions that are served (12)")
parser.add_argument("--seconds", type=float, default=240.0, help="length of the day (240)")
parser.add_argument("--peak", type=float, default=60.0, help="gps messages/s in the busiest moment (60)")
parser.add_argument("--ms", type=float, default=10.0, help="CPU time of a gps message in ms (10)")
parser.add_argument("--bound", type=float, default=1000.0, help="bound of both topics in ms (1000)")
parser.add_argument("--seed", type=int, default=0, help="of a generated city (0)")
parser.add_argument(
    "--home", type=Path, default=None, help="the fleet's folder [default: $TRIMTAB_HOME, else .trimtab]"
)
parser.add_argument("--json", action="store_true", help="print the result as JSON")


async def main(options: argparse.Namespace) -> None:
    trips = read_trips(options.trips) if options.trips else generated(60_000, options.seed)
    city = activity(trips, options.regions, STEPS)
    home = options.home or fleet_home()
    service = TaxiService(
        home, city, options.seconds, options.peak, f"burn?ms={options.ms:g}", options.ms, options.bound
    )  # fmt: skip
    shown = time.monotonic()
    async with Operator.open(home) as operator:

        async def show(share: float) -> None:
            nonlocal shown
            if options.json or time.monotonic() < shown + 5.0:
                return
            shown = time.monotonic()
            hosts = [row.broker for row in await operator.topics() if row.topic.startswith("gps.")]
            print(
                f"{24 * share:5.1f} h  {service.rates(share).sum():6.1f} messages/s  {len(set(hosts))} brokers in use  "
                f"p90 {service.gps.percentile_ms(90):4.0f} ms so far", flush=True,
            )  # fmt: skip

        await service.run(show)
    result = {
        name: {"sent": tally.sent, "delivered": len(tally.delays_s), "kept": tally.kept(options.bound / 1000.0),
               "p90_ms": tally.percentile_ms(90)}
        for name, tally in (("gps", service.gps), ("update", service.update))
    }  # fmt: skip
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, row in result.items():
        print(f"{name}: {row['delivered']:,} of {row['sent']:,} messages delivered, {row['kept']:.2%} within "
              f"{options.bound:g} ms, p90 {row['p90_ms']:.0f} ms")  # fmt: skip


try:
    asyncio.run(main(parser.parse_args()))
except TrimtabError as error:
    parser.exit(2, f"run.py: {error}\n")
except KeyboardInterrupt:
    pass
