"""A swarm's leader: creates the swarm's two topics, sends commands, and prints what it hears.

python examples/swarm/leader.py --swarm red --zone b1
"""

import argparse
import asyncio
import contextlib
import time

import trimtab

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--swarm", default="red", help="name of the swarm (red)")
parser.add_argument("--zone", default="b1", help="broker of the zone that the swarm flies in (b1)")
parser.add_argument("--bound", type=float, default=40.0, help="bound of both topics in ms (40)")
parser.add_argument("--seconds", type=float, default=3600.0, help="how long it flies (3600)")


async def main(options: argparse.Namespace) -> None:
    lead, sense = f"{options.swarm}.lead", f"{options.swarm}.sense"
    heard: list[float] = []
    async with trimtab.connect(name=f"{options.swarm}-leader", gateway=options.zone, access_ms=2.0) as client:
        for topic in (lead, sense):
            await client.create_topic(topic, latency_ms=options.bound)
        await client.subscribe(sense, lambda message: heard.append(1000 * (time.time() - float(message.text))))
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            for _ in range(20):
                await client.publish(lead, f"{options.zone} {time.time()}")  # "follow me to this zone"
                await asyncio.sleep(0.1)
            late = sum(ms > options.bound for ms in heard)
            worst = max(heard, default=0.0)
            print(f"{lead} is at {await client.route(lead)}: {len(heard)} heard, {late} late, worst {worst:.0f} ms")
            heard.clear()


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main(parser.parse_args()))
