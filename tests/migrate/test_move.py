"""One move: its happy paths, every mishap in every phase, and what no order of events can bring about."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.migrate.move import (
    Activate,
    Drain,
    HandOver,
    ImpossibleStep,
    Move,
    Phase,
    Prepare,
    Refused,
    Restarted,
    Retire,
    SourceLost,
    SourceSilent,
    Started,
    Succeeded,
    Switch,
    TargetLost,
    Undo,
    advance,
)
from trimtab.model.key import Key

PLAIN = Move("m1", Key("topic", "cam.7", ""), "b1", "b2")
STATEFUL = Move("m2", Key("topic", "cam.7", ""), "b1", "b2", stateful=True)
DURABLE = Move("m3", Key("topic", "cam.7", ""), "b1", "b2", stateful=True, durable=True)
CLIENT = Move("m4", Key("client", "", "taxi"), "b1", "b2")
LINK = Move("m5", Key("link", "cam.7", "taxi"), "b1", "b2")
INTERIM = Move("m6", Key("topic", "cam.7", ""), "b1", "b2", stateful=True, interim=True)
KINDS = {"plain": PLAIN, "stateful": STATEFUL, "durable": DURABLE, "client": CLIENT, "link": LINK, "interim": INTERIM}
kinds = pytest.mark.parametrize("move", KINDS.values(), ids=KINDS.keys())

FAILURES = (Refused("no room"), SourceSilent(), SourceLost(), TargetLost())
EVENTS = (Started(), Restarted(), Succeeded(), *FAILURES)
UNDER_WAY = (Phase.PREPARING, Phase.HANDING_OVER, Phase.SWITCHING, Phase.ACTIVATING, Phase.DRAINING, Phase.ROLLING_BACK)
OVER = (Phase.DONE, Phase.ROLLED_BACK)
ORDERED = {  # what is under way in a phase
    Phase.PREPARING: Prepare(),
    Phase.HANDING_OVER: HandOver(),
    Phase.SWITCHING: Switch("b2"),
    Phase.ACTIVATING: Activate(),
    Phase.DRAINING: Drain(),
    Phase.ROLLING_BACK: Undo(),
}


def story(move, *events):
    """(phase, instructions) after each event."""
    told = []
    for event in events:
        move, instructions = advance(move, event)
        told.append((move.phase, instructions))
    return told


def happily(move):
    events = [Started()]
    while not (told := story(move, *events))[-1][0].over:
        events.append(Succeeded())
    return told


PREPARING = (Phase.PREPARING, [Prepare()])
HANDING_OVER = (Phase.HANDING_OVER, [HandOver()])
SWITCHING = (Phase.SWITCHING, [Switch("b2")])
ACTIVATING = (Phase.ACTIVATING, [Activate()])
DRAINING = (Phase.DRAINING, [Drain()])
DONE = (Phase.DONE, [Retire()])


@pytest.mark.parametrize("move", [PLAIN, CLIENT, LINK], ids=["plain", "client", "link"])
def test_what_has_no_state_is_prepared_switched_and_drained(move):
    assert happily(move) == [PREPARING, SWITCHING, DRAINING, DONE]


def test_a_topic_with_a_state_hands_it_over_before_the_switch():
    assert happily(STATEFUL) == [PREPARING, HANDING_OVER, SWITCHING, DRAINING, DONE]


def test_a_move_without_the_hub_is_activated_after_the_switch():
    told = story(INTERIM, Started(), Succeeded(), Succeeded(), Succeeded(), TargetLost(), Succeeded(), Succeeded())

    assert told[3:] == [
        (Phase.ACTIVATING, [Activate()]),
        (Phase.ACTIVATING, [Activate()]),
        (Phase.DRAINING, [Drain()]),
        (Phase.DONE, [Retire()]),
    ]


def test_a_topic_with_stored_messages_is_activated_after_the_switch():
    assert happily(DURABLE) == [PREPARING, HANDING_OVER, SWITCHING, ACTIVATING, DRAINING, DONE]


@kinds
@pytest.mark.parametrize("event", [Refused("no room"), SourceSilent(), TargetLost()], ids=str)
@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.HANDING_OVER, Phase.SWITCHING])
def test_before_the_route_has_changed_a_failure_leads_back_if_the_source_is_alive(move, phase, event):
    told = story(replace(move, phase=phase), event, Succeeded())

    assert told == [(Phase.ROLLING_BACK, [Undo()]), (Phase.ROLLED_BACK, [])]


@pytest.mark.parametrize(
    ("phase", "later"),
    [
        (Phase.PREPARING, [PREPARING, SWITCHING, ACTIVATING, DRAINING, DONE]),
        (Phase.HANDING_OVER, [SWITCHING, ACTIVATING, DRAINING, DONE]),
        (Phase.SWITCHING, [SWITCHING, ACTIVATING, DRAINING, DONE]),
        (Phase.ROLLING_BACK, [PREPARING, SWITCHING, ACTIVATING, DRAINING, DONE]),
    ],
)
def test_a_topic_whose_source_dies_is_taken_over_by_the_target(phase, later):
    told = story(replace(STATEFUL, phase=phase), SourceLost(), *[Succeeded()] * (len(later) - 1))

    assert told == later


@pytest.mark.parametrize("event", [Refused("no such module"), TargetLost()], ids=str)
@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.SWITCHING])
def test_a_takeover_that_fails_ends_without_the_source(phase, event):
    """The key is then at its dead source, and the controller can place it elsewhere."""
    move, _ = advance(replace(STATEFUL, phase=phase), SourceLost())

    told = story(move, event, SourceLost(), Succeeded())

    assert told == [(Phase.ROLLING_BACK, [Undo()]), (Phase.ROLLING_BACK, [Undo()]), (Phase.ROLLED_BACK, [])]
    assert not advance(move, event)[0].stateful  # so nothing is asked of the source


@pytest.mark.parametrize("move", [PLAIN, CLIENT, LINK], ids=["plain", "client", "link"])
@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.SWITCHING])
def test_a_key_without_state_does_not_need_its_source(move, phase):
    after, instructions = advance(replace(move, phase=phase), SourceLost())

    assert (after.phase, instructions, after.takeover) == (phase, [ORDERED[phase]], False)


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.HANDING_OVER, Phase.SWITCHING])
def test_stored_messages_wait_for_their_source(phase):
    told = story(replace(DURABLE, phase=phase), SourceLost(), SourceLost(), SourceSilent(), Succeeded())

    assert told == [*[(Phase.ROLLING_BACK, [Undo()])] * 3, (Phase.ROLLED_BACK, [])]


@pytest.mark.parametrize("event", FAILURES, ids=str)
def test_stored_messages_are_activated_until_it_works(event):
    """They exist in full at the target only, so there is no way back."""
    move = replace(DURABLE, phase=Phase.ACTIVATING)

    assert story(move, event, event, Succeeded()) == [ACTIVATING, ACTIVATING, DRAINING]


@kinds
@pytest.mark.parametrize("event", [SourceSilent(), SourceLost(), TargetLost()], ids=str)
def test_a_drain_ends_with_whoever_has_left_by_then(move, event):
    assert story(replace(move, phase=Phase.DRAINING), event) == [DONE]


@kinds
def test_a_client_that_cannot_reach_the_new_place_stays_where_it_is_unless_its_topic_has_moved(move):
    told = story(replace(move, phase=Phase.DRAINING), Refused("taxi cannot reach b2"))

    assert told == ([DONE] if move.unit == "topic" else [(Phase.ROLLING_BACK, [Undo()])])


@kinds
@pytest.mark.parametrize("event", [Refused("no room"), SourceSilent(), TargetLost()], ids=str)
def test_the_way_back_is_tried_until_it_works_if_the_source_is_alive(move, event):
    told = story(replace(move, phase=Phase.ROLLING_BACK), event, event, Succeeded())

    assert told == [(Phase.ROLLING_BACK, [Undo()]), (Phase.ROLLING_BACK, [Undo()]), (Phase.ROLLED_BACK, [])]


@kinds
@pytest.mark.parametrize("event", FAILURES, ids=str)
def test_a_move_that_has_not_begun_ends_without_a_trace(move, event):
    assert story(move, event) == [(Phase.ROLLED_BACK, [])]


@kinds
@pytest.mark.parametrize("phase", UNDER_WAY)
def test_an_executor_that_is_back_does_again_what_was_under_way(move, phase):
    move = replace(move, phase=phase)

    assert advance(move, Restarted()) == (move, [ORDERED[phase]])


@kinds
@pytest.mark.parametrize("event", EVENTS, ids=str)
@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_an_answer_to_everything_that_can_happen(move, phase, event):
    """Nothing happens to a move that is over; nothing has been ordered before the start, which is only once."""
    impossible = (
        phase in OVER
        or (phase is Phase.PLANNED and event == Succeeded())
        or (phase is not Phase.PLANNED and event == Started())
    )

    if impossible:
        with pytest.raises(ImpossibleStep):
            advance(replace(move, phase=phase), event)
    else:
        after, _ = advance(replace(move, phase=phase), event)
        same = replace(after, phase=move.phase, reason="")
        assert same == (replace(move, stateful=False, takeover=True) if after.takeover else move)


def test_an_impossible_step_says_what_cannot_happen_to_whom_and_when():
    with pytest.raises(ImpossibleStep) as caught:
        advance(replace(LINK, phase=Phase.DRAINING), Started())

    assert str(caught.value) == "Started() cannot happen to link cam.7 taxi from b1 to b2 while it is draining"


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Refused("no room"), "no room"),
        (SourceSilent(), "b1 does not answer while preparing"),
        (TargetLost(), "b2 does not answer while preparing"),
    ],
    ids=str,
)
def test_a_move_that_was_rolled_back_keeps_the_reason(event, reason):
    move, _ = advance(replace(PLAIN, phase=Phase.PREPARING), event)
    move, _ = advance(move, TargetLost())
    move, _ = advance(move, Succeeded())

    assert (move.phase, move.reason) == (Phase.ROLLED_BACK, reason)


def test_a_takeover_says_when_the_source_died():
    move, _ = advance(replace(STATEFUL, phase=Phase.HANDING_OVER), SourceLost())

    assert (move.takeover, move.reason) == (True, "b1 died while the move was handing over")


@dataclass(frozen=True)
class Step:
    before: Move
    ordered: object  # the instruction that was under way
    event: object
    after: Move
    given: list


@st.composite
def stories(draw):
    """What an executor sees that answers each instruction with anything, or lets something else happen."""
    move, ordered, steps = draw(st.sampled_from(list(KINDS.values()))), None, []
    for _ in range(draw(st.integers(1, 25))):
        possible = [e for e in EVENTS if e != (Succeeded() if move.phase is Phase.PLANNED else Started())]
        likely = Started() if move.phase is Phase.PLANNED else Succeeded()
        event = draw(st.one_of(st.just(likely), st.sampled_from(possible)))
        after, given = advance(move, event)
        steps.append(Step(move, ordered, event, after, given))
        move, ordered = after, given[-1] if given else ordered
        if move.phase.over:
            break
    return steps


def done(steps, instruction):
    """The index of the step in which ``instruction`` succeeded; None if it never did."""
    return next((i for i, s in enumerate(steps) if s.ordered == instruction and s.event == Succeeded()), None)


@given(steps=stories())
def test_what_is_over_stays_over(steps):
    for step in steps:
        for event in EVENTS:
            if step.after.phase.over:
                with pytest.raises(ImpossibleStep):
                    advance(step.after, event)
        assert not step.before.phase.over


@given(steps=stories())
def test_a_durable_topic_is_never_rolled_back_once_it_is_switched(steps):
    switched = done(steps, Switch("b2"))

    if (steps[0].before.durable or steps[0].before.interim) and switched is not None:
        assert {step.after.phase for step in steps[switched:]} <= {Phase.ACTIVATING, Phase.DRAINING, Phase.DONE}


@given(steps=stories())
def test_the_only_ways_to_be_rolled_back_are_to_undo_and_not_to_begin(steps):
    last = steps[-1]

    if last.after.phase is Phase.ROLLED_BACK:
        assert last.before.phase is Phase.PLANNED or (last.ordered, last.event) == (Undo(), Succeeded())


@given(steps=stories())
def test_instructions_come_in_the_order_that_loses_nothing(steps):
    move, so_far = steps[0].before, []
    for step in steps:
        so_far.append(step)
        for instruction in step.given:
            match instruction:
                case HandOver():
                    assert move.stateful
                    assert done(so_far, Prepare()) is not None
                case Switch(to):
                    assert to == "b2"
                    handed_over = done(so_far, HandOver() if move.stateful else Prepare()) is not None
                    assert handed_over or step.after.takeover
                    assert done(so_far, Prepare()) is not None
                case Activate():
                    assert move.durable or move.interim or step.after.takeover
                    assert done(so_far, Switch("b2")) is not None
                case Drain():
                    activated = move.durable or move.interim
                    assert done(so_far, Activate() if activated else Switch("b2")) is not None
                    assert done(so_far, Activate()) is not None or not step.after.takeover
                case Retire():
                    assert step.after.phase is Phase.DONE


@given(steps=stories())
def test_whenever_the_executor_comes_back_it_goes_on_with_the_same_instruction(steps):
    ordered = Prepare()
    for step in steps:
        ordered = step.given[-1] if step.given else ordered
        if not step.after.phase.over:
            move, again = advance(step.after, Restarted())
            assert again == [ordered]
            assert step.after.phase in (move.phase, Phase.PLANNED)


@given(steps=stories())
def test_a_move_is_over_within_ten_steps_once_everything_works(steps):
    for step in steps:
        move, needed = step.after, 0
        while not move.phase.over:
            move, _ = advance(move, Started() if move.phase is Phase.PLANNED else Succeeded())
            needed += 1
            assert needed <= 10
