"""What Khare et al. (SEC'18, VI-C and VI-D) say about Figures 3 and 4, statement by statement, beside our results."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.lab.experiment import Row, markdown_table, mean, select
from trimtab.lab.worlds.colocation import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ORACLES: Final = ("mlp", "queueing")
FFD, HYBRID, LFS = "topic/ffd", "topic/lfs-ffd", "topic/lfs"
SIMILAR: Final = 0.10  # relative difference up to which two figures count as comparable
WIDE: Final = 0.05  # difference in CPU use, of all cores, that counts as a wide variation
EQUAL: Final = 1e-9


def figure_3(rows: list[Row]) -> str:
    """A line for each statement, a column for each kind of request and oracle."""
    return _table(rows, (
        ("3a: the three need similar numbers of brokers", lambda part: _similar(part, "brokers")),
        ("3a: LFS needs fewer brokers than FFD and the hybrid in most cases", lambda part: _lfs_less(part, "brokers")),
        ("3b: LFS takes much longer than FFD; the hybrid lies between", _times),
        ("3c: CPU use does not vary widely", _cpu),
        ("3d: p90 of FFD and of the hybrid is comparable", lambda part: _comparable(part, "p90_ms")),
        ("3d: p90 of LFS is lower for all n", lambda part: _lfs_less(part, "p90_ms")),
        ("3e: up to 9 % of messages are out of bound", lambda part: _highest(part, "messages_out")),
        ("3e: fewer messages are out of bound under LFS", lambda part: _lfs_less(part, "messages_out")),
        ("3f: up to 13 % of topics are out of bound", lambda part: _highest(part, "topics_out")),
        ("3f: fewer topics are out of bound under LFS, but for n = 70", lambda part: _lfs_less(part, "topics_out")),
    ))  # fmt: skip


def figure_4(rows: list[Row]) -> str:
    return _table(rows, (
        ("4a: a higher k' needs fewer brokers", lambda part: _by_k_prime(part, "brokers", "{:.1f}")),
        ("4b: a higher k' takes longer, CPU s", lambda part: _by_k_prime(part, "cpu_s", "{:.3f}")),
        ("4c: CPU use does not vary much, %", lambda part: _by_k_prime(part, "cpu", "{:.0f}", 100.0)),
        ("4d: mean p90 rises with k', ms", lambda part: _by_k_prime(part, "p90_ms", "{:,.0f}")),
        ("4e: up to 6 % of messages are out of bound", lambda part: _highest(part, "messages_out")),
        ("4f: up to 12 % of topics are out of bound", lambda part: _highest(part, "topics_out")),
    ))  # fmt: skip


def _table(rows: list[Row], statements: Sequence[tuple[str, Callable[[list[Row]], str]]]) -> str:
    of_paper = [row for row in rows if row["policy"] in (FFD, HYBRID, LFS)]
    parts = {
        (kind, oracle): part
        for oracle in ORACLES for kind in KINDS
        if (part := select(of_paper, kind=kind, oracle=oracle))
    }  # fmt: skip
    lines = [(text, *(found(part) for part in parts.values())) for text, found in statements]
    return markdown_table(["the paper says", *(f"{kind}, {oracle}" for kind, oracle in parts)], lines)


def _means(part: list[Row], policy: str, column: str) -> dict[int, float]:
    """By number of topics."""
    mine = select(part, policy=policy)
    return {n: mean(mine, column, topics=n) for n in sorted({row["topics"] for row in mine})}


def _lfs_less(part: list[Row], column: str) -> str:
    """At how many n LFS has less than both others, as much as the best of them, and more; and at which n more."""
    lfs, ffd, hybrid = (_means(part, policy, column) for policy in (LFS, FFD, HYBRID))
    less, more = [], []
    for n, value in lfs.items():
        best = min(ffd[n], hybrid[n])
        if value < best - EQUAL:
            less.append(n)
        elif value > best + EQUAL:
            more.append(n)
    at = f" (n = {', '.join(map(str, more))})" if more else ""
    return f"less at {len(less)} of {len(lfs)}, equal at {len(lfs) - len(less) - len(more)}, more at {len(more)}{at}"


def _similar(part: list[Row], column: str) -> str:
    all_three = [_means(part, policy, column) for policy in (LFS, FFD, HYBRID)]
    values = np.array([[each[n] for n in all_three[0]] for each in all_three])
    widest = float((values.max(axis=0) / values.min(axis=0) - 1.0).max())
    return f"{_yes(widest <= SIMILAR)}: within {widest:.0%}"


def _comparable(part: list[Row], column: str) -> str:
    ffd, hybrid = (_means(part, policy, column) for policy in (FFD, HYBRID))
    ratio = {n: abs(hybrid[n] / ffd[n] - 1.0) for n in ffd}
    count = sum(value <= SIMILAR for value in ratio.values())
    return f"within {SIMILAR:.0%} at {count} of {len(ratio)}, at most {max(ratio.values()):.0%} apart"


def _times(part: list[Row]) -> str:
    lfs, ffd, hybrid = (_means(part, policy, "cpu_s") for policy in (LFS, FFD, HYBRID))
    between = sum(ffd[n] <= hybrid[n] <= lfs[n] for n in lfs)
    largest = max(lfs)
    return (f"LFS {lfs[largest] / ffd[largest]:,.0f} times FFD at n = {largest}; between at {between} of {len(lfs)}; "
            f"LFS at most {max(row['cpu_s'] for row in select(part, policy=LFS)):.1f} CPU s")  # fmt: skip


def _cpu(part: list[Row]) -> str:
    all_three = [_means(part, policy, "cpu") for policy in (LFS, FFD, HYBRID)]
    values = np.array([[each[n] for n in all_three[0]] for each in all_three])
    widest = float((values.max(axis=0) - values.min(axis=0)).max())
    return f"{_yes(widest <= WIDE)}: within {100 * widest:.1f} points"


def _highest(part: list[Row], column: str) -> str:
    """The highest mean of any policy at any n (or any k')."""
    across = "k_prime" if "k_prime" in part[0] else "topics"
    groups = {(row["policy"], row[across]) for row in part}
    means = [mean(part, column, **{"policy": policy, across: at}) for policy, at in groups]
    return f"{100 * max(means):.1f} %"


def _by_k_prime(part: list[Row], column: str, form: str, times: float = 1.0) -> str:
    hybrid = select(part, policy=HYBRID)
    values = [times * mean(hybrid, column, k_prime=at) for at in sorted({row["k_prime"] for row in hybrid})]
    rises = sum(after > before + EQUAL for before, after in itertools.pairwise(values))
    falls = sum(after < before - EQUAL for before, after in itertools.pairwise(values))
    return f"{' '.join(form.format(value) for value in values)} (rises {rises}, falls {falls} times)"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
