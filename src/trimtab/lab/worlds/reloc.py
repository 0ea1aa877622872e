"""RELOC's field (Tanaka et al., Section 7): servers on a grid, and the members of each topic around a random place.

The members of topics come from a file of lists, in the form of the paper's Figure 7 or 8, or from random lists of the
same shape: 8 to 21 members, and three in four people on one list only. The paper leaves two points open. Chosen here: a
person on several lists lives near the place of the first one. A position outside the field is drawn again; clipping
would put too many people on the border. All people publish and subscribe, at the same rate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput, BadKnob, MissingColumn
from trimtab.lab.worlds.option import option
from trimtab.model import tables
from trimtab.model.ids import Ids
from trimtab.model.positions import EARTH_KM
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.model.workload import Floats

SIZES: Final = (8, 21)  # smallest and largest size of a list; Figure 13
MEAN: Final = 14.6  # size of a list
SD: Final = 3.3  # standard deviation of that size
LISTS_OF_ONE: Final = (0.79, 0.16, 0.04, 0.01)  # share of people on one, two, three, four lists


@dataclass(frozen=True, slots=True)
class RelocField:
    topics: int = option(64, "how many topics")
    grid: int = option(4, "servers in a row, and number of rows")
    sigma: float = option(5.0, "standard deviation of the distance of a topic's members from its place, km")
    side: float = option(25.0, "side of the field, km")
    per_member: float = option(2.0, "messages that a topic keeps for each of its members")
    storage: float = option(640.0, "messages that a server can store")
    compute: float = option(3200.0, "publishers x messages kept that a server can process")
    lists: str = option("", "file of membership lists, a topic per line; random lists if left out")
    sites: str = option("", "CSV of real servers with latitude and longitude, instead of the grid; needs --users")
    users: str = option("", "CSV of real people with latitude and longitude, from whom members are drawn")

    def __post_init__(self) -> None:
        for name in ("topics", "grid"):
            if getattr(self, name) < 1:
                raise BadKnob("reloc", name, getattr(self, name), "at least 1")
        for name in ("sigma", "side", "per_member", "storage", "compute"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise BadKnob("reloc", name, getattr(self, name), "zero or more")
        if bool(self.sites) != bool(self.users):
            raise BadInput("reloc: --sites and --users belong together")
        if self.side == 0.0:
            raise BadKnob("reloc", "side", self.side, "above zero")

    def make(self, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        lists = read_lists(Path(self.lists), self.topics) if self.lists else made_up(self.topics, rng)
        names = list(dict.fromkeys(name for members in lists for name in members))
        row = {name: at for at, name in enumerate(names)}
        place = np.full((len(names), 2), np.nan)
        draw = self._real_people(rng) if self.users else self._made_up_people(rng)
        for members in lists:
            new = [row[name] for name in members if np.isnan(place[row[name], 0])]
            place[new] = draw(len(new))
        if self.sites:
            site, axes = _read_places(Path(self.sites)), ("lat", "lon")
        else:
            step = self.side / self.grid
            line = step / 2.0 + step * np.arange(self.grid)
            site, axes = np.stack([np.tile(line, self.grid), np.repeat(line, self.grid)], axis=1), ("x_km", "y_km")
        size = np.array([len(members) for members in lists], np.float64)
        topic = np.repeat(np.arange(len(lists)), size.astype(int))
        client = np.array([row[name] for members in lists for name in members], np.int64)
        both = np.tile(np.array([PUB, SUB], np.int8), len(topic))
        position: dict[str, Any] = dict(zip(axes, place.T, strict=True))
        return Workload(
            Topics(Ids.numbered("t", len(lists)), rate=size, spool=self.per_member * size),
            Clients(Ids(names, table="clients"), **position),
            Brokers(
                Ids.numbered("s", len(site)), storage=np.full(len(site), self.storage),
                compute=np.full(len(site), self.compute), **dict(zip(axes, site.T, strict=True)),
            ),
            Links(np.repeat(topic, 2), np.repeat(client, 2), both),
        )  # fmt: skip

    def _made_up_people(self, rng: np.random.Generator) -> Callable[[int], Floats]:
        def around(many: int) -> Floats:
            middle = rng.uniform(0.0, self.side, 2)
            place = np.empty((0, 2))
            while len(place) < many:
                drawn = rng.normal(middle, self.sigma, (many, 2))
                place = np.concatenate([place, drawn[((drawn >= 0.0) & (drawn <= self.side)).all(axis=1)]])
            return place[:many]

        return around

    def _real_people(self, rng: np.random.Generator) -> Callable[[int], Floats]:
        """Draw members around a random person; near people are more likely."""
        people = _read_places(Path(self.users))

        def around(many: int) -> Floats:
            middle = people[rng.integers(len(people))]
            km = np.radians(people - middle) * EARTH_KM * [1.0, np.cos(np.radians(middle[0]))]
            chance = np.exp(-0.5 * (km**2).sum(axis=1) / max(self.sigma, 1e-9) ** 2)
            return people[rng.choice(len(people), many, p=chance / chance.sum())]

        return around


def _read_places(path: Path) -> Floats:
    """(places, 2): latitude and longitude. Columns may have the full or the short name, in any case."""
    table = tables.read(path)
    columns_by_name = {name.lower(): name for name in table.column_names}
    columns = []
    for spellings in (("latitude", "lat"), ("longitude", "lon")):
        column = next((columns_by_name[name] for name in spellings if name in columns_by_name), None)
        if column is None:
            raise MissingColumn(str(path), spellings[0], table.column_names, "the position of each row")
        columns.append(tables.numbers(table, column, path=path, may_be_empty=False))
    if not table.num_rows:
        raise BadInput(f"{path} has no rows")
    return np.stack(columns, axis=1)


def made_up(topics: int, rng: np.random.Generator) -> list[list[str]]:
    """Random lists with the paper's distributions of list sizes and of lists per person."""
    size = np.clip(np.rint(rng.normal(MEAN, SD, topics)), *SIZES).astype(int)
    free = size.copy()
    lists: list[list[str]] = [[] for _ in range(topics)]
    number = 0
    while free.any():
        open_lists = np.flatnonzero(free)
        many = min(1 + int(rng.choice(len(LISTS_OF_ONE), p=LISTS_OF_ONE)), len(open_lists))
        chosen = rng.choice(open_lists, many, replace=False, p=free[open_lists] / free.sum())
        for at in chosen:
            lists[at].append(f"c{number}")
        free[chosen] -= 1
        number += 1
    return lists


def read_lists(path: Path, most: int) -> list[list[str]]:
    """The first ``most`` lines: ``follower, [followee, followee, ...]`` or ``topic, member, member, ...``.

    In the first form the follower is a member, too.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    lists: list[list[str]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if len(lists) == most:
            break
        follower = re.fullmatch(r"\s*([^\s,\[\]]+)\s*,\s*\[(.*)\]\s*", line)
        text = f"{follower[1]},{follower[2]}" if follower else line.partition(",")[2]
        members = [name.strip() for name in text.split(",")]
        if not all(members) or any(mark in name for name in members for mark in "[] \t") or len(members) < 2:
            raise BadInput(
                f"{path}, line {number}: '{line[:60]}' is no membership list; a list is 'follower, [followee, ...]' or "
                "'topic, member, member, ...' with two members or more"
            )
        if len(set(members)) < len(members):
            twice = next(name for name in members if members.count(name) > 1)
            raise BadInput(f"{path}, line {number}: member '{twice}' is listed twice")
        lists.append(members)
    if len(lists) < most:
        raise BadInput(f"{path} has {len(lists)} lists, but --topics asks for {most}")
    return lists
