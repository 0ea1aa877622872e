"""Worlds: generators of workloads by name. Their fields are the options of ``trimtab world``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from trimtab.errors import UnknownName
from trimtab.lab.worlds.bad import Bad
from trimtab.lab.worlds.colocation import Colocation
from trimtab.lab.worlds.maxdata import MaxData
from trimtab.lab.worlds.mmog import Mmog
from trimtab.lab.worlds.reloc import RelocField
from trimtab.lab.worlds.uav import Uav

if TYPE_CHECKING:
    from trimtab.model.workload import Workload


class World(Protocol):
    """A frozen dataclass. Its fields are the options; their metadata contains the ``help`` text."""

    def make(self, seed: int) -> Workload: ...


WORLDS: Final[dict[str, type[World]]] = {
    "maxdata": MaxData, "bad": Bad, "reloc": RelocField, "colocation": Colocation, "mmog": Mmog, "uav": Uav,
}  # fmt: skip


def world_class(name: str) -> type[World]:
    if name not in WORLDS:
        raise UnknownName("world", name, WORLDS)
    return WORLDS[name]
