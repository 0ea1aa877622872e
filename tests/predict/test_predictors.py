"""The contract of all registered predictors, and of the models they make."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput, UnknownName
from trimtab.model.hardware import PAPER, PROFILES
from trimtab.predict.accuracy import BOUND_MS, coverage
from trimtab.predict.card import Card, Evaluation, data_of, evaluations
from trimtab.predict.configurations import PROCESSING_MS, highest_rates, packed_sets, simulated_samples
from trimtab.predict.fit import fitted
from trimtab.predict.mlp import layers
from trimtab.predict.model import Structured
from trimtab.predict.queueing import Queueing
from trimtab.predict.registry import PREDICTORS, predictor
from trimtab.predict.sets import Sets
from trimtab.predict.store import MODEL, read_card, read_model, write_model
from trimtab.predict.trees import Growth, Trees
from trimtab.predict.trim import FOR_TREES, Trim, TrimModel, corrected_features

NAMES = sorted(PREDICTORS)
EVERY = [pytest.param(name, marks=[] if name == "poly4" else pytest.mark.slow) for name in NAMES]  # to be fitted first
MOST = 3
HIGHEST = dict(zip(PROCESSING_MS, highest_rates(PAPER).tolist(), strict=True))


def drawn(hardware, per_size, seed, most=MOST):
    return simulated_samples(hardware, most, per_size, seed)


@functools.cache
def train():
    return drawn(PAPER, 200, 1)


@functools.cache
def held_out():
    return drawn(PAPER, 150, 2)


@functools.cache
def model(name):
    return predictor(name).fit(train(), seed=3)


topic = st.sampled_from(PROCESSING_MS).flatmap(lambda ms: st.tuples(st.integers(1, HIGHEST[ms]), st.just(ms)))


@st.composite
def some_sets(draw, most):
    groups = draw(st.lists(st.lists(topic, min_size=1, max_size=most), min_size=1, max_size=5))
    rows = [row for group in groups for row in group]
    rate, ms = (np.array(column, float) for column in zip(*rows, strict=True))
    return Sets(np.concatenate([[0], np.cumsum([len(group) for group in groups])]), rate, ms)


@pytest.mark.parametrize("name", EVERY)
@given(data=st.data(), coverages=st.tuples(st.floats(0.05, 0.95), st.floats(0.05, 0.95)))
def test_every_topic_has_a_p90_and_intervals_that_are_nested(name, data, coverages):
    sets = data.draw(some_sets(model(name).most))
    narrow, wide = sorted(coverages)

    p90 = model(name).p90_ms(sets)
    (inner_low, inner_high), (low, high) = (model(name).interval_ms(sets, each) for each in (narrow, wide))

    assert p90.shape == inner_low.shape == high.shape == sets.rate.shape
    assert (low <= inner_low).all()
    assert (inner_low <= p90).all()
    assert (p90 <= inner_high).all()
    assert (inner_high <= high).all()
    assert (low > 0.0).all()
    assert np.isfinite(high).all()


@pytest.mark.parametrize("name", EVERY)
@given(data=st.data())
def test_sets_are_answered_independently_of_each_other(name, data):
    sets = data.draw(some_sets(model(name).most))

    together = model(name).p90_ms(sets)
    apart = np.concatenate([model(name).p90_ms(sets.take(np.array([row]))) for row in range(len(sets))])

    assert together == pytest.approx(apart, rel=1e-9)


@pytest.mark.parametrize("name", EVERY)
@given(data=st.data(), subscribers=st.integers(2, 3000))
def test_copies_for_many_subscribers_are_predicted_as_processing(name, data, subscribers):
    """The paper's features do not have subscribers."""
    sets = data.draw(some_sets(model(name).most))
    many = replace(sets, subscribers=np.full(len(sets.rate), float(subscribers)))

    as_processing = model(name).p90_ms(many.for_one_subscriber(model(name).hardware))

    assert model(name).p90_ms(many) == pytest.approx(as_processing, rel=1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_the_same_samples_and_seed_give_the_same_model(name):
    small = train().take(np.flatnonzero(np.arange(len(train())) % 3 == 0))

    one, again = (predictor(name).fit(small, seed=5) for _ in range(2))

    assert one.as_json() == again.as_json()


@pytest.mark.parametrize("name", EVERY)
def test_intervals_are_calibrated_on_topics_not_fitted_on(name):
    test = held_out() if model(name).most > 1 else held_out().with_size(1)
    few = 100 if name == "poly4" else 20 * MOST  # topics behind the calibration

    for share in (0.5, 0.8, 0.9):
        low, high = model(name).interval_ms(test.sets, share)
        slack = 3.5 * np.sqrt(share * (1.0 - share) * (1.0 / few + 1.0 / len(test.p90_ms)))
        assert coverage(test.p90_ms, low, high) == pytest.approx(share, abs=slack)


@pytest.mark.parametrize("name", EVERY)
def test_predictions_are_near_what_is_measured(name):
    test = held_out() if model(name).most > 1 else held_out().with_size(1)

    assert Evaluation.of(model(name), test).accuracy.r2 > 0.93


@pytest.mark.parametrize("name", EVERY)
def test_nan_and_larger_sets_are_refused(name):
    made, one = model(name), np.array([0, 1])
    with pytest.raises(BadInput, match="rate of a topic to predict must be zero or more, and finite, but is nan"):
        made.p90_ms(Sets(one, np.array([np.nan]), np.array([10.0])))
    with pytest.raises(BadInput, match="processing_ms of a topic to predict must be zero or more"):
        made.interval_ms(Sets(one, np.array([1.0]), np.array([-1.0])))
    count = made.most + 1
    with pytest.raises(BadInput, match=f"{name} is made for at most {made.most} topics .* asked about {count}"):
        made.p90_ms(Sets(np.array([0, count]), np.full(count, 1.0), np.full(count, 10.0)))


@pytest.mark.parametrize("name", EVERY)
def test_too_few_samples_are_refused(name):
    few = train().take(np.arange(9))  # nine topics that were alone

    with pytest.raises(BadInput, match=r"needs \d+ measured"):
        predictor(name).fit(few)


@pytest.mark.parametrize("name", EVERY)
def test_a_stored_model_is_the_same_model(name, tmp_path):
    made = model(name)
    card = Card(name, PAPER.name, made.most, data_of(train()), 3, "held-out sets", evaluations(made, held_out()))

    write_model(made, card, tmp_path / "m")
    write_model(made, card, tmp_path / "m")  # and replaced
    again = read_model(tmp_path / "m", hardware=PAPER.name, topics=made.most)

    part = held_out().take(np.flatnonzero(held_out().sets.sizes <= made.most))
    assert again.p90_ms(part.sets).tolist() == made.p90_ms(part.sets).tolist()
    assert again.interval_ms(part.sets)[1].tolist() == made.interval_ms(part.sets)[1].tolist()
    assert again.hardware == made.hardware
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]
    assert read_card(tmp_path / "m")["by_topics"]["1"]["r2"] > 0.9
    assert "## Not for" in (tmp_path / "m" / "card.md").read_text()


@pytest.mark.parametrize("name", EVERY)
def test_models_of_other_hardware_size_and_version_are_refused(name, tmp_path):
    made, folder = model(name), tmp_path / "m"
    write_model(made, Card(name, PAPER.name, made.most, data_of(train()), 3, "nothing"), folder)

    with pytest.raises(BadInput, match="a model for hardware 'xeon-e5420', but the hardware is 'pi': measure 20 to 50"):
        read_model(folder, hardware="pi")
    with pytest.raises(BadInput, match=f"at most {made.most} topics on a broker, but 9 were asked for: .* --k 9"):
        read_model(folder, topics=9)
    content = json.loads((folder / MODEL).read_text())
    (folder / MODEL).write_text(json.dumps(content | {"version": 8}))
    with pytest.raises(BadInput, match="a model of version 8, but must be of version 1: train it again"):
        read_model(folder)
    del content["model"]["hardware" if name == "poly4" else "alone" if name == "mlp" else "structure"]
    (folder / MODEL).write_text(json.dumps(content))
    with pytest.raises(BadInput, match=r"is damaged .*: train the model again"):
        read_model(folder)
    with pytest.raises(BadInput, match=r"no folder of a model: it has no model\.json"):
        read_model(tmp_path)
    with pytest.raises(BadInput, match="is no folder of a model; choose another one"):
        write_model(made, Card(name, PAPER.name, made.most, data_of(train()), 3, "nothing"), tmp_path)


def test_an_unknown_predictor_is_refused():
    with pytest.raises(UnknownName, match="there is no predictor 'mpl'; did you mean 'mlp'"):
        predictor("mpl")


@given(
    group=st.lists(topic, min_size=1, max_size=MOST - 1), more=topic, place=st.integers(0, MOST - 2),
    faster=st.integers(1, 30),
)  # fmt: skip
def test_trim_never_expects_less_where_load_grows(group, more, place, faster):
    """A topic is added, or the rate of one rises: no p90 falls, but for the rounding of the fixed point."""
    rate, ms = (np.array(column, float) for column in zip(*group, more, strict=True))
    raised = rate.copy()
    raised[place % len(group)] += faster
    count = len(group)
    sets = Sets(np.array([0, count, 2 * count + 1, 3 * count + 2]),
                np.concatenate([rate[:-1], rate, raised]), np.concatenate([ms[:-1], ms, ms]))  # fmt: skip

    p90 = model("trim").p90_ms(sets)

    before, after, later = p90[:count], p90[count : 2 * count], p90[2 * count + 1 :]
    assert (after >= before * (1.0 - 2e-3)).all()
    assert (later >= p90[count : 2 * count + 1] * (1.0 - 2e-3)).all()


def test_trim_is_structured_and_adapts_to_more_cores():
    made = model("trim")
    sets = held_out().with_size(3).sets
    assert isinstance(made, Structured)
    assert len(train().p90_ms) >= FOR_TREES
    assert made.trees is not None

    larger = made.on(replace(made.hardware, cores=8))

    assert (larger.use(sets) <= made.use(sets)).all()
    assert larger.p90_ms(sets).mean() < made.p90_ms(sets).mean()


@pytest.mark.slow
def test_a_model_of_similar_hardware_is_adapted_with_fifty_sets():
    slow = PROFILES["two-slow-cores"]
    few, test = drawn(slow, 17, 5), drawn(slow, 60, 6)

    adapted = Trim(source=model("trim")).fit(few)

    assert adapted.hardware.name == slow.name
    assert Evaluation.of(model("trim"), test).accuracy.r2 < 0.9
    assert Evaluation.of(adapted, test).accuracy.r2 > 0.98
    assert TrimModel.from_json(adapted.as_json()).p90_ms(test.sets).tolist() == adapted.p90_ms(test.sets).tolist()


def test_trees_answer_as_scikit_learn_does():
    from sklearn.ensemble import HistGradientBoostingRegressor

    rng = np.random.default_rng(1)
    rows = rng.random((500, 3))
    target = rows[:, 0] + np.sin(6 * rows[:, 1])
    known = HistGradientBoostingRegressor(max_iter=20, early_stopping=False, random_state=0).fit(rows, target)

    trees = Trees.from_json(Trees._of(known).as_json())
    rising = Trees.grown(rows, target, (True, True, True), 0, Growth(rounds=30))

    fresh = rng.random((300, 3)) * 1.4 - 0.2
    assert trees.answer(fresh) == pytest.approx(known.predict(fresh), rel=1e-12)
    line = np.stack([np.full(50, 0.5), np.linspace(0, 1, 50), np.full(50, 0.5)], axis=1)
    assert (np.diff(rising.answer(line)) >= 0.0).all()


def test_the_features_of_trees_are_of_the_topic_and_its_neighbours():
    sets = Sets(np.array([0, 2, 3]), np.array([10.0, 5.0, 10.0]), np.array([10.0, 40.0, 10.0]))

    rows = corrected_features(fitted(train().take(np.arange(0, 600, 20))), sets)

    assert rows[0, 6] == 2
    assert rows[0, 5] == rows[1, 1]  # the busiest other topic
    assert rows[2, 3:6].tolist() == [0.0, 0.0, 0.0]  # without others
    assert rows[0, 0] > rows[2, 0]


def test_packed_sets_are_as_full_as_the_model_allows():
    queueing = Queueing(PAPER)

    sets = packed_sets(queueing, 4, 60, 5)
    few = packed_sets(queueing, 4, 20, 5)

    highest = sets.highest(queueing.p90_ms(sets))
    assert sets.rate[: len(few.rate)].tolist() == few.rate.tolist()
    assert (highest[sets.sizes > 1] <= BOUND_MS).all()
    assert sets.sizes.max() == 4
    roomy = np.flatnonzero((sets.sizes == 4) & (sets.highest(queueing.use(sets)) < 0.5))
    assert len(roomy) < 0.5 * (sets.sizes == 4).sum()  # most full brokers have a busy worker


def test_the_networks_are_those_of_the_paper():
    shapes = [[weight.shape[1] for weight in network.weights] for network in model("mlp").networks]

    assert shapes == [[40, 40, 1]] * (MOST - 1)
    assert (layers(5), layers(6)) == ((40, 40), (100, 100))


def quick(name):
    """A model that takes no time to fit."""
    return TrimModel(Queueing(PAPER), None, 3) if name == "trim" else model(name)


@pytest.mark.parametrize("name", ["poly4", "trim"])
@pytest.mark.parametrize(
    "damage",
    [
        {"most": "abc"}, {"most": 1e999}, {"model": 3}, {"model": None}, {"predictor": "oracle"}, {"hardware": "pi"},
        {"most": 2.5},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_file_is_refused_in_a_sentence(name, damage, tmp_path):
    made = quick(name)
    write_model(made, Card(name, PAPER.name, made.most, data_of(train()), 3, "nothing"), tmp_path / "m")
    path = tmp_path / "m" / MODEL
    path.write_text(json.dumps(json.loads(path.read_text()) | damage).replace("Infinity", "1e999"))

    with pytest.raises(BadInput, match="train the model again"):
        read_model(tmp_path / "m")


@pytest.mark.parametrize(("name", "column"), [("poly4", "weights"), ("trim", "most")])
@pytest.mark.parametrize("value", ["abc", ["x"], None])
def test_text_among_the_numbers_of_a_model_is_refused(name, column, value, tmp_path):
    made = quick(name)
    write_model(made, Card(name, PAPER.name, made.most, data_of(train()), 3, "nothing"), tmp_path / "m")
    path = tmp_path / "m" / MODEL
    content = json.loads(path.read_text())
    content["model"][column] = value
    path.write_text(json.dumps(content))

    with pytest.raises(BadInput, match=r"is damaged .*: train the model again"):
        read_model(tmp_path / "m")


def test_a_model_with_nan_is_refused(tmp_path):
    made = quick("trim")
    write_model(made, Card("trim", PAPER.name, made.most, data_of(train()), 3, "nothing"), tmp_path / "m")
    path = tmp_path / "m" / MODEL
    path.write_text(path.read_text().replace('"network_ms": 2.0', '"network_ms": NaN'))

    with pytest.raises(BadInput, match="it contains NaN, which is no number that a model can have"):
        read_model(tmp_path / "m")


def test_a_folder_with_more_than_a_model_is_not_replaced(tmp_path):
    """A folder of trimtab profile has a model.json too, and measurements beside it."""
    made, folder = quick("trim"), tmp_path / "m"
    folder.mkdir()
    (folder / MODEL).write_text("{}")
    (folder / "runs.jsonl").write_text("measured for ten minutes")

    with pytest.raises(BadInput, match="is no folder of a model; choose another one"):
        write_model(made, Card("trim", PAPER.name, made.most, data_of(train()), 3, "nothing"), folder)

    assert (folder / "runs.jsonl").read_text() == "measured for ten minutes"


@pytest.mark.parametrize(
    ("name", "sizes", "sentence"),
    [
        ("trim", [1] * 9, "trim needs 10 measured sets or more, but has 9"),
        ("poly4", [1] * 29 + [2] * 50, "poly4 needs 30 measured topics that were alone, but has 29"),
        ("mlp", [1] * 30 + [2] * 19, "needs 20 measured sets for each, but has 19 sets of 2 topics"),
        ("mlp", [1] * 30 + [3] * 20, "has 0 sets of 2 topics"),
    ],
)
def test_sizes_alone_say_whether_samples_are_enough(name, sizes, sentence):
    with pytest.raises(BadInput, match=sentence):
        predictor(name).refuse_too_few(np.array(sizes))
