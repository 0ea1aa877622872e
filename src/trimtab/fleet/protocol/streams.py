"""Names and limits of the streams and buckets that several processes use."""

from __future__ import annotations

from typing import Final

TELEMETRY: Final = "telemetry"  # all reports of brokers
SNAPSHOT: Final = "snapshot"  # the newest measurement of the whole fleet, in parts
DECISIONS: Final = "decisions"  # decisions of the controller, with the data they were made from
CONTROL: Final = "control"  # bucket: the controller's lease and its state
REGISTRY: Final = "registry"  # bucket: topics, clients, links, brokers, channels, cordons
MOVES: Final = "moves"  # bucket: records of moves
POSITIONS: Final = "positions"  # bucket: the results of channels that each client has seen
SUBSCRIPTIONS: Final = "subscriptions"  # one message for each subscriber of each channel subscription
BACKEND: Final = "backend"  # channel subscriptions that the data cluster computes
RESULTS: Final = "results"  # results of channels
LEDGER: Final = "ledger"  # executions that the data cluster began and finished: the newest entry per channel and feed
MOST: Final = 1_000  # subscriptions in one request
ACK_S: Final = 10.0  # a fetched message is delivered again if it is not acknowledged within this time
