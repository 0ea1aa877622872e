"""Thirty clients that all start at broker b1, each with an own topic. Some topics have three times as many messages.

The example is a load for a controller: `trimtab up --brokers 3 --measure`, then `python examples/crowd/run.py`.
"""

import asyncio
import contextlib

import trimtab

PEOPLE = 30


async def main() -> None:
    async with contextlib.AsyncExitStack() as stack:
        source = await stack.enter_async_context(trimtab.connect(name="source"))
        people = []
        for number in range(PEOPLE):
            await source.create_topic(f"news.{number}", unit="client")  # placed by client, at each client's home
            person = await stack.enter_async_context(trimtab.connect(name=f"person-{number}", home="b1"))
            people.append(person)
            await person.subscribe(f"news.{number}", lambda _: None)
        previous = ""
        while True:
            for number in range(PEOPLE):
                for _ in range(1 + number // 10):
                    await source.publish(f"news.{number}", "x" * 200)
            await asyncio.sleep(0.2)
            serving = [person.serving or "none" for person in people]
            current = ", ".join(f"{serving.count(broker)} at {broker}" for broker in sorted(set(serving)))
            if current != previous:
                previous = current
                print(current, flush=True)


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
