"""What a policy is asked is timed without the time its kernels take to compile."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from numba.core.dispatcher import Dispatcher

from trimtab.lab.answer import ask, warm_up
from trimtab.lab.worlds.bad import Bad
from trimtab.lab.worlds.reloc import RelocField
from trimtab.model.problem import Problem
from trimtab.place import client
from trimtab.place.judge import judge
from trimtab.place.registry import policies, policy


def compiled() -> dict[str, int]:
    """How many forms every kernel of the family has been compiled in."""
    modules = [
        importlib.import_module(f"{client.__name__}.{each.name}") for each in pkgutil.iter_modules(client.__path__)
    ]
    return {
        f"{module.__name__}.{name}": len(kernel.signatures)
        for module in modules
        for name, kernel in vars(module).items()
        if isinstance(kernel, Dispatcher)
    }


@pytest.mark.parametrize("name", policies("client"))
def test_nothing_is_compiled_while_a_policy_is_timed(name):
    world = (
        RelocField(topics=6, grid=2)
        if name == "client/reloc"
        else Bad(brokers=3, subscribers=60, backend=30, fewest=2, most=5)
    )
    load = world.make(1)
    anew = Problem(load, "client")
    known = Problem(load, "client", policy("client/nearest").place(anew))
    warm_up(name)
    judge(known, known.current)  # it has kernels, too, but is not timed
    before = compiled()

    ask(name, anew)
    ask(name, known)
    ask(name, known, budget=0.2)

    assert compiled() == before
