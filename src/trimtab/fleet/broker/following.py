"""Topics follow their clients: a broker tells the controller when the bound of a topic that it hosts is missed.

The controller measures the whole fleet every few seconds, but a client that moves changes the latency of its topics at
once. The broker of a topic learns of that from the client's next report, and reports the topic directly. While no
controller acts on that, because it or the hub is away, the broker gives the topic to a better broker itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING, Final

import nats.errors

from trimtab.errors import BadInput, Moving, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ReportMissed

if TYPE_CHECKING:
    from trimtab.fleet.broker.agent import Agent
    from trimtab.fleet.broker.summaries import TopicSummaries
    from trimtab.observe.best_brokers import AtBrokers

log = logging.getLogger("trimtab.agent")
PERIOD_S: Final = 0.25
EVERYTHING_S: Final = 5.0  # interval at which all topics are looked at, since coordinates of brokers change too
ANSWER_S: Final = 1.0
AGAIN_S: Final = 1.0  # interval of reports that say the same
BEST: Final = 3  # brokers that are asked to take a topic
ARRIVE_S: Final = 2.5  # time after the arrival of a topic within which all of its clients follow and report
MOST: Final = 50  # topics in a report, those with most violating pairs first
ALONE_S: Final = 5.0  # time without an answer after which this broker acts: another controller may be taking over
REST_S: Final = 5.0  # time after an attempt to give a topic away, until the next one


class Following:
    """``run`` is a loop that does not end. ``alone``: whether this broker acts itself if no controller does."""

    def __init__(self, agent: Agent, summaries: TopicSummaries, *, alone: bool) -> None:
        self.missed: dict[str, AtBrokers] = {}  # topics that another broker would serve better, at the last look
        self._agent = agent
        self._summaries = summaries
        self._may_act = alone
        self._arriving: set[str] = set()  # topics that have come here just now
        self._recovered: dict[str, AtBrokers] = {}  # topics that were missed, and of which that must be reported
        self._reported: dict[str, AtBrokers] = {}  # the last report that was answered
        self._reported_at = -math.inf
        self._alone_since: float | None = None  # since when no controller answers
        self._tried: dict[str, float] = {}  # topic -> time of the last attempt to give it away
        self._giving = tasks.Background("a topic that follows its clients", log)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        everything_at = loop.time()
        try:
            while True:
                await asyncio.sleep(PERIOD_S)
                everything = loop.time() >= everything_at
                if everything:
                    everything_at = loop.time() + EVERYTHING_S
                await self.look(everything=everything)
                if not self.missed:
                    self._alone_since = None
                if (self.missed or self._recovered) and await self._is_alone(loop.time()) and self._may_act:
                    self._give(loop.time())
        finally:
            await self._giving.end()

    async def look(self, *, everything: bool = False) -> None:
        """Find missed bounds among the topics whose clients have moved, and those that were missed before."""
        agent = self._agent
        joined = agent.links.take_joined() | agent.links.topics_of(agent.positions.take_moved())
        topics = None if everything else self.missed.keys() | joined | self._arriving
        if topics is not None and not topics:
            return
        found, missed = await self._summaries.at_brokers(topics, agent.alive, agent.stock)
        missed -= self._incomplete(missed)
        for topic in missed - self.missed.keys():
            miss = found[topic]
            log.info("topic %s takes %g ms through the network at %s", topic, miss.worst_ms, miss.broker)
        # A topic that has left this broker is not reported again: its present broker knows more.
        self._recovered |= {topic: found[topic] for topic in self.missed if topic in found and topic not in missed}
        self._recovered = {topic: known for topic, known in self._recovered.items() if topic not in missed}
        worst = sorted(missed, key=lambda topic: (-found[topic].violating, topic))[:MOST]
        self.missed = {topic: found[topic] for topic in worst}

    def _incomplete(self, topics: set[str]) -> set[str]:
        """Those of these topics that have come here just now. Some of their clients may not have come yet, and the
        latencies are those of the others."""
        now, since = asyncio.get_running_loop().time(), self._agent.links.since
        self._arriving = {topic for topic in topics if now < since(topic) + ARRIVE_S}
        return self._arriving

    async def _is_alone(self, now: float) -> bool:
        """Report the missed bounds, at once if they have changed. Returns whether this broker has to act itself."""
        agent, report = self._agent, self._recovered | self.missed
        if not agent.hub_is_there():
            self._recovered = {}
            return bool(self.missed)
        if report == self._reported and now < self._reported_at + AGAIN_S:
            return False
        with contextlib.suppress(BadInput, Unreachable, nats.errors.Error, TimeoutError, OSError):
            acts = (await wire.ask(agent.connection, ReportMissed(report), ANSWER_S)).acts
            self._reported, self._reported_at, self._recovered, self._alone_since = report, now, {}, None
            return not acts
        self._alone_since = self._alone_since or now
        return now >= self._alone_since + ALONE_S

    def _give(self, now: float) -> None:
        """Give missed topics to better brokers, each to the best one that takes it."""
        self._tried = {topic: at for topic, at in self._tried.items() if now < at + REST_S}
        moves, registry = self._agent.peer_moves, self._agent.registry
        waiting = [topic for topic in self.missed if topic not in self._tried and topic not in moves.moving]
        entries = {topic: registry.find_topic(topic) for topic in waiting}
        movable = [topic for topic, entry in entries.items() if entry is not None and not entry.persistent]
        for topic in movable[: moves.places]:
            self._tried[topic] = now
            self._giving.start(self._give_to_one_of(topic, self.missed[topic].better()[:BEST]))

    async def _give_to_one_of(self, topic: str, brokers: list[str]) -> None:
        for broker in brokers:
            try:
                return await self._agent.peer_moves.give(topic, broker)
            except Moving:
                return None
            except (BadInput, Unreachable) as error:
                log.warning("topic %s cannot be given to %s: %s", topic, broker, error)
                if isinstance(error, Unreachable) and error.changed:
                    return None  # it may be there already
        return None
