"""Tasks end although a library swallows their cancellation, and what does not end is named."""

from __future__ import annotations

import ast
import asyncio
import logging
from pathlib import Path

import pytest

import trimtab
from helpers.waiting import until
from trimtab.fleet import tasks
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ListBrokers
from trimtab.fleet.site.launch import admin_connection

SOURCE = Path(trimtab.__file__).parent
log = logging.getLogger("trimtab.tests")


async def turns(many=10):
    """Until all tasks have done what can be done now."""
    for _ in range(many):
        await asyncio.sleep(0)


class Stubborn:
    """A loop that swallows its first cancellations, as a loop of requests may; ``inf`` never ends."""

    def __init__(self, swallows):
        self.swallows = swallows
        self.cancelled = 0

    async def run(self):
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled += 1
                if self.cancelled > self.swallows:
                    raise


async def started(loop):
    task = asyncio.create_task(loop.run(), name="stubborn")
    await turns()
    return task


@pytest.mark.parametrize("swallows", [0, 1, 3])
def test_a_task_that_swallows_cancellations_ends(swallows):
    async def scenario():
        stubborn = Stubborn(swallows)
        task = await started(stubborn)
        await tasks.end(task, within_s=10.0, again_s=0.01)
        return task.cancelled(), stubborn.cancelled

    assert asyncio.run(scenario()) == (True, swallows + 1)


def test_a_loop_of_wait_for_swallows_a_cancellation_and_ends_all_the_same():
    """Cancelled once, this loop goes on: in Python 3.11 wait_for returns a result that comes with the cancellation."""

    async def scenario():
        answers = []

        async def requests():
            while True:
                answers.append(asyncio.get_running_loop().create_future())
                await asyncio.wait_for(answers[-1], 3600)

        task = asyncio.create_task(requests())
        await turns()
        answers[-1].set_result("an answer")
        task.cancel()
        await turns()
        assert (len(answers), task.done()) == (2, False)

        answers[-1].set_result("another one")
        await tasks.end(task, again_s=0.01)
        return task.cancelled()

    assert asyncio.run(scenario())


def test_a_loop_of_requests_to_a_real_server_ends_after_a_swallowed_cancellation(fleet):
    async def scenario():
        connection = await admin_connection(fleet.launch.fleet)

        async def requests():
            while True:
                await wire.ask(connection, ListBrokers())

        task = asyncio.create_task(requests())
        await until(lambda: connection._resp_map)
        answer, cancelled = next(iter(connection._resp_map.values())), asyncio.Event()
        answer.add_done_callback(lambda _: cancelled.set() if task.cancel() else None)
        assert await tasks.happens(cancelled, 10.0)
        await turns()
        assert not task.done()

        await tasks.end(task)
        assert task.cancelled()
        await wire.close(connection)

    asyncio.run(scenario())


def test_a_task_that_never_ends_is_named_and_given_up(caplog):
    async def scenario():
        task = await started(Stubborn(float("inf")))
        await tasks.end(task, within_s=0.05, again_s=0.01)
        done, task.get_coro().cr_frame.f_locals["self"].swallows = task.done(), 0
        await tasks.end(task)
        return done

    assert not asyncio.run(scenario())
    assert (
        "task 'stubborn' was cancelled 5 times and has not ended; it waits at Stubborn.run (test_tasks.py:"
        in caplog.text
    )
    assert "sleep (tasks.py:" in caplog.text


def test_a_run_is_over_although_a_task_never_ends(monkeypatch, caplog):
    monkeypatch.setattr(tasks, "WITHIN_S", 0.05)
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)
    kept = []

    async def scenario():
        kept.append(await started(Stubborn(float("inf"))))
        kept.append(await started(Stubborn(2)))
        return "done"

    assert tasks.run(scenario()) == "done"
    assert [task.done() for task in kept] == [False, True]
    assert caplog.text.count("has not ended") == 1
    kept[0]._log_destroy_pending = False


def test_a_task_that_fails_while_it_is_ended_is_logged(caplog):
    async def fails():
        try:
            await asyncio.sleep(3600)
        finally:
            raise ValueError("no disk")

    async def scenario():
        task = asyncio.create_task(fails(), name="writer")
        await turns()
        await tasks.end(task)

    asyncio.run(scenario())
    assert "task 'writer' failed while it was ended: ValueError('no disk')" in caplog.text


def test_what_was_done_before_is_left_to_its_owner(caplog):
    async def fails():
        raise ValueError("no disk")

    async def scenario():
        task = asyncio.create_task(fails())
        await turns()
        await tasks.end(task)
        with pytest.raises(ValueError, match="no disk"):
            await task

    asyncio.run(scenario())
    assert caplog.text == ""


def test_a_task_that_ends_itself_is_not_awaited():
    async def scenario():
        background = tasks.Background("a client", log)

        async def closes():
            await background.end()
            return "closed"

        background.start(Stubborn(0).run())
        return await background.start(closes())

    assert asyncio.run(scenario()) == "closed"


def test_background_tasks_that_start_others_while_they_end_are_ended_too():
    async def scenario():
        background, begun = tasks.Background("a client", log), []

        async def first():
            try:
                await asyncio.sleep(3600)
            finally:
                begun.append(background.start(Stubborn(0).run()))

        background.start(first())
        await turns()
        await background.end()
        return [task.cancelled() for task in begun]

    assert asyncio.run(scenario()) == [True]


def test_the_failure_of_a_background_task_is_logged(caplog):
    async def fails():
        raise ValueError("no disk")

    async def scenario():
        tasks.Background("client taxi-7", log).start(fails())
        await turns()

    asyncio.run(scenario())
    assert "client taxi-7: ValueError('no disk')" in caplog.text


def test_within_gives_the_result_or_the_failure_of_the_work():
    async def fails():
        raise ValueError("no disk")

    async def scenario():
        assert await tasks.within(10.0, asyncio.sleep(0, "an answer")) == "an answer"
        with pytest.raises(ValueError, match="no disk"):
            await tasks.within(10.0, fails())

    asyncio.run(scenario())


def test_within_ends_work_that_swallows_its_first_cancellation(monkeypatch):
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)

    async def scenario():
        stubborn = Stubborn(1)
        with pytest.raises(TimeoutError):
            await tasks.within(0.01, stubborn.run())
        return stubborn.cancelled

    assert asyncio.run(scenario()) == 2


def test_work_ends_with_the_task_that_waits_for_it():
    async def scenario():
        stubborn = Stubborn(0)
        waiting = asyncio.create_task(tasks.within(3600, stubborn.run()))
        await turns()
        await tasks.end(waiting)
        return waiting.cancelled(), stubborn.cancelled

    assert asyncio.run(scenario()) == (True, 1)


def test_an_event_happens_or_not():
    async def scenario():
        event = asyncio.Event()
        before = await tasks.happens(event, 0.01)
        asyncio.get_running_loop().call_soon(event.set)
        return before, await tasks.happens(event, 10.0), await tasks.happens(event, 0.0)

    assert asyncio.run(scenario()) == (False, True, True)


def test_loops_run_until_they_are_told_to_stop(monkeypatch):
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)

    async def scenario():
        stop, loops = asyncio.Event(), [Stubborn(0), Stubborn(0)]
        running = asyncio.create_task(tasks.run_until(stop, *(each.run() for each in loops)))
        await turns()
        assert not running.done()
        stop.set()
        await running
        return [each.cancelled for each in loops]

    assert asyncio.run(scenario()) == [1, 1]


def test_a_loop_that_fails_ends_the_others_and_is_raised():
    async def fails():
        raise ValueError("no disk")

    async def scenario():
        other = Stubborn(0)
        with pytest.raises(ValueError, match="no disk"):
            await tasks.run_until(asyncio.Event(), other.run(), fails())
        return other.cancelled

    assert asyncio.run(scenario()) <= 1


def test_pending_tasks_are_listed_by_where_they_wait():
    async def scenario():
        many = [asyncio.create_task(asyncio.sleep(3600), name=f"sleeper {number}") for number in range(30)]
        one = await started(Stubborn(0))
        lines = tasks.describe([*many, one])
        await tasks.end(*many, one)
        return lines

    lines = asyncio.run(scenario())
    assert len(lines) == 2
    assert lines[0].startswith("stubborn: Stubborn.run (test_tasks.py:")
    assert lines[1].startswith("sleeper 0 and 29 more: sleep (tasks.py:")


def uses(name):
    """The modules that use this function."""
    texts = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    return {
        str(path.relative_to(SOURCE))
        for path, text in texts.items()
        if name.rpartition(".")[2] in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == name
    }


def test_wait_for_is_not_used():
    """It may swallow a cancellation; ``asyncio.timeout`` and ``tasks.within`` do not."""
    assert uses("asyncio.wait_for") == set()


def test_event_loops_with_nats_connections_are_run_by_tasks():
    """``asyncio.run`` cancels tasks only once, and may await a task of nats-py for ever."""
    assert uses("asyncio.run") == {"fleet/tasks.py", "lab/delay.py"}  # the delaying proxy has no NATS connection


def test_connections_are_closed_by_wire():
    """nats-py's ``close`` leaves tasks behind if the server is gone."""
    assert {module for module in uses("connection.close") if module.startswith(("fleet", "cli", "pipeline"))} == {
        "fleet/protocol/wire.py"
    }
