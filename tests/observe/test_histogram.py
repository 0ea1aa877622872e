"""The latency histogram: how exact it is, and that it adds up."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.observe.histogram import LARGEST_S, PER_OCTAVE, SMALLEST_S, Histogram

ERROR = 0.045
durations = st.floats(SMALLEST_S, LARGEST_S)
samples = st.lists(durations, max_size=60)


def histogram(sample):
    made = Histogram()
    for each in sample:
        made.add(each)
    return made


def together(*parts):
    whole = Histogram()
    for part in parts:
        whole.merge(part)
    return whole


@given(sample=st.lists(durations, min_size=1, max_size=200), share=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_right_within_four_and_a_half_percent(sample, share):
    exact = np.quantile(sample, share, method="inverted_cdf")

    assert histogram(sample).percentile(share) == pytest.approx(exact, rel=ERROR)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
def test_a_percentile_of_many_latencies_is_right_within_four_and_a_half_percent(seed, share):
    sample = np.random.default_rng(seed).lognormal(math.log(0.005), 1.5, 5_000)

    assert histogram(sample.tolist()).percentile(share) == pytest.approx(
        np.quantile(sample, share, method="inverted_cdf"), rel=ERROR
    )


@given(seconds=durations)
def test_one_duration_is_every_percentile(seconds):
    found = histogram([seconds])

    assert found.percentile(0.0) == found.percentile(0.5) == found.percentile(1.0) == pytest.approx(seconds, rel=ERROR)


@given(a=samples, b=samples, c=samples)
def test_merged_in_any_way_histograms_are_that_of_all(a, b, c):
    x, y, z = histogram(a), histogram(b), histogram(c)

    left = together(together(x, y), z)
    right = together(x, together(z, y))

    assert left.counts == right.counts == histogram(a + b + c).counts
    assert left.total == len(a) + len(b) + len(c)


def test_merging_leaves_the_other_as_it_was():
    mine, other = histogram([0.1]), histogram([0.2])

    mine.merge(other)
    mine.add(0.2)

    assert other.counts == histogram([0.2]).counts


@given(sample=samples)
def test_a_histogram_survives_json(sample):
    sent = histogram(sample)

    received = Histogram.decode(json.loads(json.dumps(sent.encode())))

    assert received.counts == sent.counts
    assert received.encode() == sent.encode() == sorted(sent.encode())


def test_a_histogram_does_not_change_with_the_counts_it_was_made_from():
    counts = {3: 1}
    made = Histogram(counts)

    counts[3] = 7

    assert made.total == 1


def test_an_empty_histogram_has_no_percentile():
    assert math.isnan(Histogram().percentile(0.5))
    assert Histogram().total == 0
    assert Histogram().encode() == []


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, SMALLEST_S])
def test_what_is_too_short_counts_as_a_microsecond(seconds):
    assert histogram([seconds]).percentile(0.5) == pytest.approx(SMALLEST_S, rel=ERROR)


@pytest.mark.parametrize("seconds", [LARGEST_S, 1e9, math.inf])
def test_what_is_too_long_counts_as_a_day(seconds):
    assert histogram([seconds]).percentile(0.5) == pytest.approx(LARGEST_S, rel=ERROR)


def test_the_number_of_buckets_is_limited_whatever_comes():
    everything = histogram(np.geomspace(1e-9, 1e9, 20_000).tolist())

    assert len(everything.counts) <= PER_OCTAVE * math.log2(LARGEST_S / SMALLEST_S) + 1
    assert everything.total == 20_000
