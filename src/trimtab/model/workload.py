"""Workloads of a fleet: topics, clients, brokers, and the links between topics and clients."""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import BadTable, MissingColumn
from trimtab.model.ids import Ids

if TYPE_CHECKING:
    from trimtab.model.coordinates import Coordinates
    from trimtab.model.rtts import Rtts

Floats = NDArray[np.float64]
Rows = NDArray[np.int32]  # positions in another table

PUB: Final = 0
SUB: Final = 1
ROLES: Final = ("pub", "sub")  # in the order of the codes above


def column(*, required: bool = False, signed: bool = False, may_be_empty: bool = False) -> Any:
    """A number per row. ``signed``: below zero is allowed. ``may_be_empty``: NaN means "none"."""
    rules = {"required": required, "signed": signed, "may_be_empty": may_be_empty}
    return field(default=None, metadata={"column": rules})


def columns_of(table: type[Table]) -> list[Field[Any]]:
    """The numeric columns a table knows, in order."""
    return [f for f in fields(table) if "column" in f.metadata]


@dataclass(frozen=True, eq=False)
class Table:
    """Columns over one set of ids: checked and made read-only on entry. None: the column is absent."""

    name: ClassVar[str]
    ids: Ids

    def __post_init__(self) -> None:
        if not isinstance(self.ids, Ids):
            object.__setattr__(self, "ids", Ids(self.ids, table=self.name))
        for spec in columns_of(type(self)):
            values = getattr(self, spec.name)
            if values is not None:
                object.__setattr__(self, spec.name, self._checked(spec, values))
            elif spec.metadata["column"]["required"]:
                raise MissingColumn(self.name, spec.name, self.present(), "always needed")

    def __len__(self) -> int:
        return len(self.ids)

    def present(self) -> list[str]:
        """The names of the columns of numbers that are there."""
        return ["id", *(f.name for f in columns_of(type(self)) if getattr(self, f.name) is not None)]

    def need(self, name: str, why: str) -> Floats:
        """The column; if it is absent, an error that names it."""
        values: Floats | None = getattr(self, name)
        if values is None:
            raise MissingColumn(self.name, name, self.present(), why)
        return values

    def _checked(self, spec: Field[Any], values: Any) -> Floats:
        rules = spec.metadata["column"]
        checked: Floats = np.array(values, dtype=np.float64)
        if checked.shape != (len(self),):
            raise BadTable(self.name, f"{spec.name} has shape {checked.shape}, but there are {len(self)} ids")
        good = np.isfinite(checked) if rules["signed"] else (checked >= 0.0) & (checked < np.inf)
        if rules["may_be_empty"]:
            good |= np.isnan(checked)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            rule = "a finite number" if rules["signed"] else "a finite number, zero or more"
            raise BadTable(self.name, f"{spec.name} is {checked[row]:g}, but must be {rule}", row)
        checked.flags.writeable = False
        return checked


@dataclass(frozen=True, eq=False)
class Topics(Table):
    """Topics and their traffic."""

    name: ClassVar[str] = "topics"
    rate: Floats = column(required=True)  # messages/s, all publishers of the topic together
    size_bytes: Floats | None = column()  # per message; absent: rate is already in data/s
    processing_ms: Floats | None = column()  # CPU time per message at the broker
    spool: Floats | None = column()  # messages kept for processing
    latency_ms: Floats | None = column(may_be_empty=True)  # bound; empty = none
    out_rate: Floats | None = column(may_be_empty=True)  # messages/s that a subscriber receives; empty = as published
    out_bytes: Floats | None = column()  # size of a message that a subscriber receives
    relayed: Floats | None = column()  # share of publications that pass a processor or a store at their broker
    taps: Floats | None = column()  # copies of every delivery that leave the fleet, to the hub

    @cached_property
    def data_rate(self) -> Floats:
        """``d[k]``: data per second one copy of the topic takes."""
        if self.size_bytes is None:
            return self.rate
        with np.errstate(over="ignore"):
            product: Floats = self.rate * self.size_bytes
        if not np.isfinite(product).all():
            row = int(np.flatnonzero(~np.isfinite(product))[0])
            raise BadTable(self.name, "rate x size_bytes is beyond what a double can hold", row)
        product.flags.writeable = False
        return product


@dataclass(frozen=True, eq=False)
class Clients(Table):
    """Publishers and subscribers, with their positions."""

    name: ClassVar[str] = "clients"
    lat: Floats | None = column(signed=True)  # degrees
    lon: Floats | None = column(signed=True)
    x_km: Floats | None = column(signed=True)
    y_km: Floats | None = column(signed=True)
    coordinate: Coordinates | None = None  # network coordinate of each

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_coordinates(self, self.coordinate)


@dataclass(frozen=True, eq=False)
class Brokers(Table):
    """Brokers, with their positions and limits."""

    name: ClassVar[str] = "brokers"
    bandwidth: Floats | None = column()  # data/s, in and out together
    storage: Floats | None = column()  # messages
    compute: Floats | None = column()  # messages processed/s
    cores: Floats | None = column()
    memory: Floats | None = column()  # bytes
    cpu_speed: Floats | None = column()  # of one core, relative to the hardware profile in use; 1: the same
    lat: Floats | None = column(signed=True)
    lon: Floats | None = column(signed=True)
    x_km: Floats | None = column(signed=True)
    y_km: Floats | None = column(signed=True)
    coordinate: Coordinates | None = None  # network coordinate of each

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_coordinates(self, self.coordinate)


def _check_coordinates(table: Table, coordinates: Coordinates | None) -> None:
    if coordinates is not None and len(coordinates) != len(table):
        raise BadTable(table.name, f"there are {len(coordinates)} coordinates, but {len(table)} ids")


def refuse_mixed_dimensions(clients: Clients, brokers: Brokers) -> None:
    """Refuse coordinates of clients and brokers that cannot be compared."""
    if clients.coordinate is None or brokers.coordinate is None:
        return
    those, these = clients.coordinate.point.shape[1], brokers.coordinate.point.shape[1]
    if those != these:
        row = int(np.argmax(brokers.coordinate.known))
        raise BadTable(brokers.name, f"coordinate has {these + 1} numbers, but those of clients have {those + 1}; all "
                       "coordinates of a workload have the same dimension", row)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Links:
    """(topic, client, role) triples without duplicates."""

    name: ClassVar[str] = "links"
    topic: Rows  # (L,) row in topics
    client: Rows  # (L,) row in clients
    role: NDArray[np.int8]  # (L,) PUB or SUB
    weight: Floats | None = None  # (L,) PUB: share of the topic's publications; SUB: number of subscriptions

    def __post_init__(self) -> None:
        for column_name, kind in (("topic", np.int32), ("client", np.int32), ("role", np.int8)):
            values = np.ascontiguousarray(getattr(self, column_name), dtype=kind)
            if values is getattr(self, column_name) and values.flags.writeable:
                values = values.view()  # a read-only window: ten million rows are not copied
            values.flags.writeable = False
            object.__setattr__(self, column_name, values)
        if not len(self.topic) == len(self.client) == len(self.role):
            raise BadTable(self.name, "topic, client and role differ in length")
        if self.weight is not None:
            object.__setattr__(self, "weight", self._checked_weight(self.weight))

    def _checked_weight(self, values: Any) -> Floats:
        weight: Floats = np.array(values, dtype=np.float64)
        if weight.shape != (len(self),):
            raise BadTable(self.name, f"weight has shape {weight.shape}, but there are {len(self)} links")
        good = (weight >= 0.0) & (weight < np.inf)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise BadTable(self.name, f"weight is {weight[row]:g}, but must be a finite number, zero or more", row)
        weight.flags.writeable = False
        return weight

    @classmethod
    def subscriptions(cls, topic: Any, client: Any) -> Links:
        """Links that are all subscriptions."""
        return cls(topic, client, np.full(len(topic), SUB, dtype=np.int8))

    def __len__(self) -> int:
        return len(self.topic)


@dataclass(frozen=True, eq=False)
class Workload:
    """The tables that a placement is decided by. Row ``k`` of ``topics`` is topic ``k``, and so on."""

    topics: Topics
    clients: Clients
    brokers: Brokers
    links: Links
    rtt: Rtts | None = None  # measured round-trip times, which override those of coordinates

    def __post_init__(self) -> None:
        links, rtt = self.links, self.rtt
        _refuse_unknown_rows("links", "topic", links.topic, len(self.topics))
        _refuse_unknown_rows("links", "client", links.client, len(self.clients))
        _refuse_unknown_rows("links", "role", links.role, len(ROLES))
        self._refuse_duplicate_links()
        refuse_mixed_dimensions(self.clients, self.brokers)
        if rtt is not None:
            _refuse_unknown_rows("rtt", "client", rtt.client, len(self.clients))
            _refuse_unknown_rows("rtt", "broker", rtt.broker, len(self.brokers))
            self._refuse_duplicate_pairs(rtt)

    @cached_property
    def copies(self) -> Floats:
        """(K,) copies of a message that go to subscribers: one for each subscription, and one if none is listed."""
        subscribes = self.links.role == SUB
        weight = None if self.links.weight is None else self.links.weight[subscribes]
        count = np.bincount(self.links.topic[subscribes], weights=weight, minlength=len(self.topics))
        return np.maximum(np.rint(count), 1.0)

    def _refuse_duplicate_links(self) -> None:
        links = self.links
        key = (links.topic.astype(np.int64) * len(self.clients) + links.client) * 2 + links.role
        in_order = np.sort(key)
        twice = in_order[1:] == in_order[:-1]
        if twice.any():
            first, again = np.flatnonzero(key == in_order[:-1][twice][0])[:2]
            topic, client = self.topics.ids[links.topic[again]], self.clients.ids[links.client[again]]
            role = ROLES[links.role[again]]
            problem = f"topic '{topic}', client '{client}', role {role} stands in row {first + 1} already"
            raise BadTable("links", f"{problem}; a link is listed once", int(again))

    def _refuse_duplicate_pairs(self, rtt: Rtts) -> None:
        key = rtt.client.astype(np.int64) * len(self.brokers) + rtt.broker
        in_order = np.sort(key)
        twice = in_order[1:] == in_order[:-1]
        if twice.any():
            first, again = np.flatnonzero(key == in_order[:-1][twice][0])[:2]
            client, broker = self.clients.ids[rtt.client[again]], self.brokers.ids[rtt.broker[again]]
            problem = f"client '{client}' and broker '{broker}' stand in row {first + 1} already"
            raise BadTable("rtt", f"{problem}; a measured pair is listed once", int(again))


def _refuse_unknown_rows(table: str, name: str, rows: NDArray[Any], count: int) -> None:
    outside = (rows < 0) | (rows >= count)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise BadTable(table, f"{name} {rows[row]} is not one of the {count}", row)
