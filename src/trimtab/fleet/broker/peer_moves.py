"""Moves of topics without the hub: the host of a topic gives it to another broker over the mesh of the brokers.

The giver executes the move, by the state machine of ``migrate.move``. The move is decided at one moment, when the giver
has the *interim change* of the topic's entry on disk. Before, only the giver serves the topic. From then on, only the
target may serve it, and it does so when it has the change on disk too. So two brokers never serve one topic, whichever
process dies when: a giver that is started again reads the change, and sends it to the target until the target answers.

A broker gives away only what it hosts by its own replica, so the changes of one entry form a chain, and the highest
term is the present one. The keeper takes it over when the hub is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import AlreadyThere, BadInput, Moving, NoAnswer, UnknownName, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol import coding, subjects, wire
from trimtab.fleet.protocol.agent_verbs import (
    AcceptTopic,
    DrainLinks,
    GiveTopic,
    OfferTopic,
    Ping,
    PrepareTopic,
    ReleaseTopic,
    ResumeTopic,
    RetireTopic,
)
from trimtab.fleet.protocol.entries import Change, Topic
from trimtab.fleet.protocol.move_executor import HAND_OVER_S, PREPARE_S, MoveExecutor
from trimtab.fleet.protocol.registry import topic_entry
from trimtab.fleet.protocol.request import Done
from trimtab.migrate.move import (
    Event,
    Move,
    Phase,
    Refused,
    Started,
    Succeeded,
    TargetLost,
)
from trimtab.model.key import Key

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from trimtab.fleet.broker.agent import Agent
    from trimtab.fleet.broker.hosting import Offer
    from trimtab.fleet.protocol.request import AgentRequest, Handler

log = logging.getLogger("trimtab.agent")
MOST: Final = 4  # topics that a broker gives away at once; also topics with processors that it takes at once
GIVE_S: Final = 60.0  # time after which ``give`` returns although the move goes on
ANSWER_S: Final = 2.0  # limit of short requests to other brokers
CHECK_S: Final = 5.0  # interval at which interim changes are announced, and offers checked
FULL: Final = 0.9  # part of its cores or bandwidth from which on a broker takes no topic


class PeerMoves(MoveExecutor):
    """Gives topics to other brokers, and takes topics from them, with the registry and the hosts of ``agent``."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(MOST)
        self._agent = agent
        self.moving: set[str] = agent.hosting.giving  # topics that are being given away
        self._decided: dict[str, Change] = {}  # topic -> the interim change of the move under way
        self._unanswered: dict[str, Change] = {}  # topic -> a change of an earlier run that its target may not have
        self._failures: dict[str, BadInput | Unreachable] = {}  # topic -> why it stays here
        self._running = tasks.Background("a topic given away", log)

    def handlers(self) -> list[Handler]:
        return [
            GiveTopic.answered_by(self._give), OfferTopic.answered_by(self._offered),
            AcceptTopic.answered_by(self._accepted),
        ]  # fmt: skip

    # Giving.

    @property
    def places(self) -> int:
        """The number of further topics that may be given away now."""
        return max(0, MOST - len(self.moving))

    async def give(self, topic: str, target: str) -> None:
        """Move a whole topic, which is not persistent, from this broker to another one.

        Returns when the clients have followed. ``BadInput`` or ``Unreachable`` if the topic stays here.
        """
        move = self._plan(topic, target)
        self.moving.add(topic)
        task = self._running.start(self._executed(move))
        await asyncio.wait({task}, timeout=GIVE_S)
        if not task.done():
            raise Unreachable(f"topic '{topic}' is given to '{target}', which has not answered yet", changed=True)
        if (error := task.result()) is not None:
            raise error

    async def _give(self, order: GiveTopic) -> Done:
        await self.give(order.topic, order.target)
        return Done()

    def _plan(self, name: str, target: str) -> Move:
        agent = self._agent
        topic = agent.registry.topic(name)
        if not topic.whole:
            raise BadInput(f"topic '{name}' is placed by {topic.unit}, and no broker hosts it as a whole")
        if topic.persistent:
            raise BadInput(f"topic '{name}' is persistent: its stored messages move only with the hub")
        host = agent.hosting.hosts.get(name)
        if name in self.moving or name in agent.hosting.moving or (host is not None and not host.live):
            raise Moving(f"topic '{name}' is moving already; wait until that is over")
        if agent.registry.version(name)[1] and agent.hub_is_there():
            raise Moving(f"the hub is about to take over an earlier move of topic '{name}'; wait until it has")
        if topic.broker != agent.broker:
            raise BadInput(f"topic '{name}' is at '{topic.broker}', so '{agent.broker}' cannot give it away")
        if target == agent.broker:
            raise AlreadyThere(f"topic '{name}' is at '{target}' already", target)
        if target not in agent.registry.brokers():
            raise UnknownName("broker", target, sorted(agent.registry.brokers()))
        if target in agent.registry.cordons():
            raise BadInput(f"broker '{target}' is cordoned, so nothing is placed there")
        if len(self.moving) >= MOST:
            raise BadInput(f"'{agent.broker}' gives {MOST} topics away already, the most at once")
        identity = f"{agent.broker}-{secrets.token_hex(6)}"
        return Move(identity, Key("topic", name, ""), agent.broker, target, topic.stateful, interim=True)

    async def _executed(self, move: Move) -> BadInput | Unreachable | None:
        """Execute a move. Returns why the topic has stayed here; None if it has not."""
        name = move.topic
        try:
            await self._run(move, Started())
            if name not in self._decided:
                return self._failures.get(name) or BadInput(f"topic '{name}' stays at '{move.source}': see its log")
        finally:
            self.moving.discard(name)
            self._decided.pop(name, None)
            self._failures.pop(name, None)
            self._moves.pop(move.key, None)
        topic = self._agent.registry.find_topic(name)
        if topic is None or topic.broker != move.source:
            return None
        await self._serve_again(name)
        return BadInput(f"topic '{name}' stays at '{move.source}': the hub has changed its entry meanwhile")

    async def _serve_again(self, topic: str) -> None:
        with contextlib.suppress(BadInput, Unreachable, nats.errors.Error, OSError, TimeoutError):
            await self._agent.hosting.serve_again(ResumeTopic(topic))

    # The executor of a move from here.

    async def _record(self, move: Move) -> None:
        log.info("topic %s, given to %s: %s %s", move.topic, move.target, move.phase, move.reason)
        if move.phase == Phase.ROLLING_BACK:
            self._failures.setdefault(move.topic, BadInput(move.reason))

    async def _given_up(self, move: Move, reason: str) -> bool:
        if move.topic in self._decided:
            return False
        await self._serve_again(move.topic)
        return True

    async def _prepare(self, move: Move) -> Event:
        offer = OfferTopic(move.id, self._agent.registry.change(topic_entry(move.topic)), move.source)
        asking = wire.ask(self._agent.connection, offer, PREPARE_S, broker=move.target)
        return await self._attempt(asking, TargetLost(), move.topic)

    async def _hand_over(self, move: Move) -> Event:
        order = ReleaseTopic(move.id, move.topic, move.target)
        work = tasks.within(HAND_OVER_S, self._agent.hosting.hand_over(order))
        try:
            return await self._attempt(work, TargetLost(), move.topic)
        except TimeoutError:
            return Refused(f"'{move.source}' has not handed over topic '{move.topic}' within {HAND_OVER_S:g} s")

    async def _switch(self, move: Move, to: str) -> Event:
        """Decide the move. There is nothing to switch back, because a move that is decided is not rolled back."""
        if to == move.source:
            return Succeeded()
        registry, name = self._agent.registry, topic_entry(move.topic)
        topic = registry.find_topic(move.topic)
        if topic is None or topic.broker != move.source:
            return Refused(f"topic '{move.topic}' was deleted or moved by the hub meanwhile")
        revision, term = registry.version(name)
        change = Change.of(name, topic.placed_at(to), revision, term + 1)
        try:
            self._agent.keep(change)
        except OSError as error:
            return Refused(f"'{move.source}' cannot write the change to its disk: {error.strerror}")
        self._decided[move.topic] = change
        return Succeeded()

    async def _activate(self, move: Move) -> Event:
        change = self._decided[move.topic]
        if not self._is_newest(change):
            return Succeeded()  # the target has given it away, or the keeper has placed it
        return await self._order(move.target, AcceptTopic(change), HAND_OVER_S, TargetLost())

    async def _order(self, broker: str, order: AgentRequest[Any], limit_s: float, lost: Event) -> Event:
        agent = self._agent
        work: Awaitable[Any]
        match order:
            case DrainLinks() if broker == agent.broker:
                work = agent.drain(order)
            case RetireTopic() if broker == agent.broker:
                work = agent.hosting.retire(order)
            case ResumeTopic() if broker == agent.broker:
                work = agent.hosting.serve_again(order)
            case _:
                work = wire.ask(agent.connection, order, limit_s, broker=broker)
        return await self._attempt(work, lost)

    async def _attempt(self, work: Awaitable[Any], lost: Event, topic: str = "") -> Event:
        """The event after ``work``. An error that ends the move of a ``topic`` is kept for the caller of ``give``."""
        try:
            await work
        except (BadInput, Unreachable) as error:
            if topic:
                self._failures.setdefault(topic, error)
            return lost if isinstance(error, NoAnswer) else Refused(str(error))
        return Succeeded()

    # Taking.

    async def _offered(self, offer: OfferTopic) -> Done:
        """Prepare to serve a topic, or refuse with the reason."""
        agent, name, topic = self._agent, offer.topic.name, offer.topic.entry()
        if not isinstance(topic, Topic) or not topic.whole or topic.persistent or topic.broker != offer.source:
            raise BadInput(f"'{offer.source}' cannot give away '{name}'")
        if agent.registry.version(name) > offer.topic.version:
            raise BadInput(f"'{offer.source}' has missed a change of topic '{topic.name}'")
        if topic.name in agent.hosting.moving or topic.name in self.moving:
            raise Moving(f"topic '{topic.name}' is moving already; wait until that is over")
        if agent.broker in agent.registry.cordons():
            raise BadInput(f"broker '{agent.broker}' is cordoned, so nothing is placed there")
        if limit := self._limit():
            raise BadInput(f"broker '{agent.broker}' is full: {limit}")
        if len(agent.hosting.offers) >= MOST:
            raise BadInput(f"broker '{agent.broker}' takes {MOST} topics already, the most at once")
        agent.learn(offer.topic)
        await agent.hosting.offer(PrepareTopic(offer.move, topic, offer.source), offer.topic.version)
        return Done()

    def _limit(self) -> str:
        """Why this broker is full, by its last report; empty if it has room."""
        report, about = self._agent.report, self._agent.about
        if report is None or report.period_s <= 0.0:
            return ""
        cores = report.cpu + sum(topic.busy_s for topic in report.topics.values()) / report.period_s
        if about.cores and cores > FULL * about.cores:
            return f"it uses {cores:.1f} of its {about.cores:g} cores"
        bandwidth = (report.in_bytes + report.out_bytes) / report.period_s
        if about.bandwidth and bandwidth > FULL * about.bandwidth:
            return f"it uses {bandwidth:,.0f} of its {about.bandwidth:,.0f} bytes/s"
        return ""

    async def _accepted(self, order: AcceptTopic) -> Done:
        """Serve a topic that was given to this broker. An order that comes again changes nothing."""
        agent, change, topic = self._agent, order.topic, order.topic.entry()
        if not isinstance(topic, Topic) or topic.broker != agent.broker:
            raise BadInput(f"'{change.name}' was not given to '{agent.broker}'")
        agent.keep(change)
        if not self._is_newest(change):
            await self._announce(agent.registry.change(change.name))  # the giver has missed it
            raise BadInput(f"'{agent.broker}' has a later change of topic '{topic.name}'")
        await agent.hosting.settle()
        agent.hosting.settled(topic.name)
        await self._announce(change)
        return Done()

    # Repair.

    def start(self) -> None:
        """Read the replica: an earlier run may have ended between a decision and its execution."""
        for change in self._agent.registry.interim():
            topic = change.entry()
            if isinstance(topic, Topic) and topic.broker != self._agent.broker:
                self._unanswered[topic.name] = change

    async def run(self) -> None:
        """Announce interim changes and check offers, in a loop, until the keeper has confirmed them."""
        while True:
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await self._repeat_orders()
                for change in self._agent.registry.interim():
                    topic = change.entry()
                    if isinstance(topic, Topic) and topic.broker == self._agent.broker:
                        await self._announce(change)
                for name, offer in list(self._agent.hosting.offers.items()):
                    if await self._is_void(name, offer):
                        log.info("topic %s, offered by %s: not given", name, offer.giver)
                        await self._agent.hosting.drop_offer(name)
            await asyncio.sleep(CHECK_S)

    async def stop(self) -> None:
        await self._running.end()

    async def _announce(self, change: Change) -> None:
        """Tell agents and clients, as the keeper does."""
        await self._agent.connection.publish(subjects.change(change.name), coding.encode(change))

    async def _repeat_orders(self) -> None:
        """Send the changes of an earlier run to their targets, until they answer."""
        silent = set()
        for name, change in list(self._unanswered.items()):
            topic = self._agent.registry.topic(name) if self._is_newest(change) else None
            if topic is not None and topic.broker not in silent:
                try:
                    await wire.ask(self._agent.connection, AcceptTopic(change), ANSWER_S, broker=topic.broker)
                except (BadInput, Unreachable) as error:
                    log.info("topic %s, given to %s: %s", name, topic.broker, error)
                    silent.add(topic.broker)
                    continue
            elif topic is not None:
                continue
            self._unanswered.pop(name, None)

    def _is_newest(self, change: Change) -> bool:
        return self._agent.registry.version(change.name) == change.version

    async def _is_void(self, topic: str, offer: Offer) -> bool:
        """Whether an offer will not be followed by the topic. A state that may be the only one is kept."""
        registry, hosting = self._agent.registry, self._agent.hosting
        entry = registry.find_topic(topic)
        if hosting.ordered_lately(topic) or (entry is not None and entry.broker == self._agent.broker):
            return False
        if registry.version(topic_entry(topic)) > offer.version:
            return True
        try:
            pong = await wire.ask(self._agent.connection, Ping(), ANSWER_S, broker=offer.giver)
        except (BadInput, Unreachable):
            return not offer.handed_over
        return pong.hosts.get(topic, not offer.handed_over)  # live there, so the giver has not given it away
