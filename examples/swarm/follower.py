"""A follower of a swarm: flies from zone to zone, says which gateway it is attached to, and reports to its leader.

python examples/swarm/follower.py --swarm red --name red-1 --zones b1,b2,b3 --stay 20
"""

import argparse
import asyncio
import contextlib
import itertools
import time

import trimtab

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--swarm", default="red", help="name of the swarm (red)")
parser.add_argument("--name", default="red-1", help="name of this vehicle (red-1)")
parser.add_argument("--zones", default="b1,b2,b3", help="brokers of the zones that it flies through (b1,b2,b3)")
parser.add_argument("--stay", type=float, default=20.0, help="seconds in each zone (20)")
parser.add_argument("--seconds", type=float, default=3600.0, help="how long it flies (3600)")


async def main(options: argparse.Namespace) -> None:
    zones = itertools.cycle(options.zones.split(","))
    async with trimtab.connect(name=options.name) as client:
        await client.subscribe(f"{options.swarm}.lead", lambda message: None)
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            zone = next(zones)
            await client.attach(zone, access_ms=2.0)  # from now on, latencies are counted from this zone
            print(f"{options.name} flies in the zone of {zone}", flush=True)
            leave = min(end, time.monotonic() + options.stay)
            while time.monotonic() < leave:
                await client.publish(f"{options.swarm}.sense", str(time.time()))
                await asyncio.sleep(0.1)


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main(parser.parse_args()))
