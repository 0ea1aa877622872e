"""Thirty people who all come to broker b1, each with news of its own, some with far more than others.

A load for a controller to level: `trimtab up --brokers 3 --measure`, then `python examples/crowd/run.py`.
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
            await source.create_topic(f"news.{number}", unit="client")  # it goes where its clients are
            person = await stack.enter_async_context(trimtab.connect(name=f"person-{number}", home="b1"))
            people.append(person)
            await person.subscribe(f"news.{number}", lambda _: None)
        shown = ""
        while True:
            for number in range(PEOPLE):
                for _ in range(1 + number // 10):
                    await source.publish(f"news.{number}", "x" * 200)
            await asyncio.sleep(0.2)
            serving = [person.serving or "none" for person in people]
            now = ", ".join(f"{serving.count(broker)} at {broker}" for broker in sorted(set(serving)))
            if now != shown:
                shown = now
                print(now, flush=True)


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
