"""Processors: real worker processes, driven to their ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimtab.errors import BadInput
from trimtab.fleet import tasks
from trimtab.fleet.broker.processing import processor as processor_module
from trimtab.fleet.broker.processing.burn import burn
from trimtab.fleet.broker.processing.function import encode, load
from trimtab.fleet.broker.processing.processor import TopicProcessor
from trimtab.fleet.protocol.message import Message
from trimtab.fleet.protocol.processor import parse

HELPERS = "helpers.processors"
PATIENCE_S = 60.0  # how long a test waits for what must happen; the machine may be busy


def child_processes():
    """The children of this process, zombies included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may end while we look
            text = stat.read_text()
            if int(text.rpartition(")")[2].split()[1]) == os.getpid():
                found.add(text.split()[0])
    return found


def open_files():
    """What the descriptors of this process refer to. A pipe or a socket has a number that no other one gets."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found.add(str(descriptor.readlink()))
    return found


@pytest.fixture(autouse=True)
def _no_process_or_open_file_is_left():
    """Files that an earlier test left to the garbage collector may be closed meanwhile; new ones may not stay."""
    children, files = child_processes(), open_files()
    yield
    assert child_processes() <= children
    assert open_files() <= files


class Seen:
    """What a processor reported: ``(text, result)`` or ``(text, "dead", reason)``, in that order."""

    def __init__(self):
        self.reports = []

    def result(self, message, result):
        self.reports.append((message.text, result))

    def dead(self, message, reason):
        self.reports.append((message.text, "dead", reason))

    @property
    def deaths(self):
        return [(report[0], report[2]) for report in self.reports if len(report) == 3]

    @property
    def results(self):
        return [report[1] for report in self.reports if len(report) == 2]

    @property
    def order(self):
        return [report[0] for report in self.reports]


@contextlib.asynccontextmanager
async def running(function, *, spool_size=0, limit_s=PATIENCE_S, most_bytes=math.inf, spool=(), topic="cam"):
    seen = Seen()
    spec = function if function.startswith("burn") else f"{HELPERS}:{function}"
    processor = TopicProcessor(
        topic, spec, spool_size=spool_size, limit_s=limit_s, most_bytes=most_bytes, on_result=seen.result,
        on_dead=seen.dead,
    )  # fmt: skip
    await processor.start(spool)
    try:
        yield processor, seen
    finally:
        await processor.stop()


def message(text):
    return Message("cam", str(text).encode())


def submit(processor, *texts):
    for text in texts:
        processor.submit(message(text))


async def answered(*processors):
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(p.drained() for p in processors))


def see(function, *texts, **options):
    """Everything that one processor reports about ``texts``."""

    async def scenario():
        async with running(function, **options) as (processor, seen):
            submit(processor, *texts)
            await answered(processor)
            assert processor.backlog == 0
            assert (processor.processed, processor.dead) == (len(seen.results), len(seen.deaths))
        return seen

    return asyncio.run(scenario())


# What a processor does.


def test_results_come_in_the_order_of_the_messages():
    numbers = [str(number) for number in range(500)]

    seen = see("echo", *numbers)

    assert seen.reports == [(number, number.encode()) for number in numbers]


def test_every_topic_has_a_process_of_its_own():
    async def scenario():
        async with running("own_pid", topic="a") as (a, seen_a), running("own_pid", topic="b") as (b, seen_b):
            submit(a, 1, 2)
            submit(b, 1, 2)
            await answered(a, b)
            assert (a.pid, b.pid) == (int(seen_a.results[0]), int(seen_b.results[0]))
        return {*seen_a.results, *seen_b.results, str(os.getpid()).encode()}

    assert len(asyncio.run(scenario())) == 3


def test_a_processor_may_have_no_result():
    assert see("nothing", "a", "b").reports == [("a", None), ("b", None)]


def test_arguments_of_the_specification_reach_the_function():
    assert see("scaled?by=3&unit=ms", "2", "5").results == [b"6ms", b"15ms"]


def test_what_a_function_prints_is_not_taken_for_an_answer():
    assert see("loud", *range(20)).results == [str(number).encode() for number in range(20)]


def test_messages_and_results_may_be_large():
    async def scenario():
        large = [os.urandom(size) for size in (70_000, 9_000_000, 1, 3_000_000)]
        results = []
        processor = TopicProcessor(
            "cam",
            f"{HELPERS}:echo",
            spool_size=4,
            limit_s=PATIENCE_S,
            on_result=lambda message, result: results.append(result),
            on_dead=lambda message, reason: results.append(reason),
        )
        await processor.start(Message("cam", data) for data in large)  # a large spool, too
        for data in large:
            processor.submit(Message("cam", data))
        await answered(processor)
        await processor.stop()
        assert results == large

    asyncio.run(scenario())


def test_a_result_over_the_limit_is_dead_and_costs_only_itself():
    seen = see("double", "abcd", "abcdef", "ab", most_bytes=8)

    assert seen.reports == [
        ("abcd", b"abcdabcd"), ("abcdef", "dead", "its result of 12 bytes is over the limit of 8"), ("ab", b"abab"),
    ]  # fmt: skip


def test_burning_takes_at_least_the_cpu_time_that_was_asked_for():
    before = time.process_time()

    assert burn(message("x"), (), ms=30) == b"x"

    assert time.process_time() - before >= 0.030


def test_a_processor_tells_how_long_its_workers_were_busy():
    async def scenario():
        async with running("burn?ms=20") as (processor, seen):
            submit(processor, "a", "b", "c")
            await answered(processor)
            assert seen.results == [b"a", b"b", b"c"]
            assert processor.busy_s >= 0.060

    asyncio.run(scenario())


@pytest.mark.slow
def test_the_time_of_a_worker_that_was_killed_is_counted():
    async def scenario():
        async with running("noted?path=/dev/null", limit_s=0.5) as (processor, seen):
            submit(processor, "hang")
            await answered(processor)
            assert seen.deaths == [("hang", "took longer than 0.5 s")]
            assert processor.busy_s > 0.0

    asyncio.run(scenario())


# The spool.


def test_the_function_sees_the_last_messages_oldest_first_and_the_current_one_last():
    seen = see("texts", "1", "2", "3", "4", spool_size=3)

    assert [json.loads(result) for result in seen.results] == [["1"], ["1", "2"], ["1", "2", "3"], ["2", "3", "4"]]


def test_without_a_spool_the_function_sees_none():
    assert see("texts", "1", "2", spool_size=0).results == [b"[]", b"[]"]


def test_remembered_messages_are_in_the_spool_in_their_order_and_are_not_processed():
    async def scenario():
        async with running("texts", spool_size=5, spool=[message("old")]) as (processor, seen):
            processor.remember(message("r1"))
            submit(processor, "1")
            processor.remember(message("r2"))
            submit(processor, "2")
            processor.remember(message("r3"))
            await answered(processor)
            assert [json.loads(result) for result in seen.results] == [
                ["old", "r1", "1"],
                ["old", "r1", "1", "r2", "2"],
            ]
            assert [m.text for m in processor.spool] == ["r1", "1", "r2", "2", "r3"]

    asyncio.run(scenario())


@pytest.mark.parametrize("blow", ["raise", "exit", pytest.param("hang", marks=pytest.mark.slow)])
def test_a_replaced_worker_has_the_spool_with_the_message_that_died(blow):
    async def scenario():
        async with running("texts", spool_size=4, limit_s=3.0 if blow == "hang" else PATIENCE_S) as (processor, seen):
            submit(processor, "1")
            processor.remember(message("r"))
            submit(processor, blow, "2", "3")
            await answered(processor)
            assert json.loads(seen.results[-2]) == ["1", "r", blow, "2"]
            assert json.loads(seen.results[-1]) == ["r", blow, "2", "3"]
            assert [m.text for m in processor.spool] == ["r", blow, "2", "3"]

    asyncio.run(scenario())


def test_the_spool_is_that_of_the_messages_answered_so_far(tmp_path):
    async def scenario():
        pipe = tmp_path / "pipe"
        async with listening(pipe) as here, running(f"wait_once?at=two&path={pipe}", spool_size=9) as (processor, _):
            submit(processor, "one", "two", "three")
            assert await tasks.happens(here, PATIENCE_S)
            assert [m.text for m in processor.spool] == ["one"]
            assert processor.backlog == 2

    asyncio.run(scenario())


# Messages that cannot be processed.


@pytest.mark.parametrize(
    ("blow", "reason"),
    [
        ("raise", "ValueError: not to my taste (processors.py, line "),
        ("leave", "SystemExit: 4"),
        ("starve", "MemoryError"),
        pytest.param("hang", "took longer than 3 s", marks=pytest.mark.slow),
        pytest.param("freeze", "took longer than 3 s", marks=pytest.mark.slow),
        ("exit", "its worker died: exit code 3"),
        ("kill", "its worker died: signal 9"),
        ("orphan", "its worker died: exit code 3"),
        ("crash", "its worker died: signal 11"),
        ("hang up", "its worker died: "),
    ],
)
def test_a_message_that_cannot_be_processed_costs_only_itself(blow, reason, tmp_path):
    """With 50 messages in the line: one is dead, the other 49 are processed, once and in order."""
    texts = [str(number) for number in range(50)]
    texts[20] = blow
    notes = tmp_path / "notes"

    seen = see(f"noted?path={notes}", *texts, limit_s=3.0 if reason.startswith("took") else PATIENCE_S)

    assert seen.order == texts
    assert [text for text, _ in seen.deaths] == [blow]
    assert seen.deaths[0][1].startswith(reason)
    assert notes.read_text().split("\n")[:-1] == texts


def test_a_function_that_writes_into_every_open_file_costs_only_its_message():
    """It is not known then how far the worker came, so some functions may run again; but every message is told once."""
    texts = [*map(str, range(20)), "scribble", *map(str, range(21, 50))]

    seen = see("noted?path=/dev/null", *texts)

    assert seen.order == texts
    assert seen.deaths == [("scribble", "its worker died: signal 9")]


def test_the_end_of_a_worker_is_noticed_where_the_kernel_has_no_pidfd(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")

    seen = see("texts", "exit", "fine", "kill", spool_size=1)

    assert seen.order == ["exit", "fine", "kill"]
    assert seen.deaths == [("exit", "its worker died: exit code 3"), ("kill", "its worker died: signal 9")]


def test_every_message_may_be_fatal():
    seen = see("texts", "exit", "raise", "kill", "exit", "fine", "exit", spool_size=1)

    assert [text for text, _ in seen.deaths] == ["exit", "raise", "kill", "exit", "exit"]
    assert seen.results == [b'["fine"]']


def test_a_result_that_cannot_be_sent_is_an_error_of_the_processor():
    ((_, reason),) = see("unfit", "x").deaths

    assert reason.startswith("TypeError: a result must be bytes, text or fit for JSON, but this is a set")


@contextlib.asynccontextmanager
async def listening(path):
    """An event that is set when a worker writes to the named pipe ``path``."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    heard = asyncio.Event()

    def read():
        if os.read(descriptor, 16):
            heard.set()

    asyncio.get_running_loop().add_reader(descriptor, read)
    try:
        yield heard
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


def test_a_worker_killed_from_outside_loses_the_message_it_had_in_hand(tmp_path):
    async def scenario():
        pipe = tmp_path / "pipe"
        async with listening(pipe) as here, running(f"wait_once?at=m7&path={pipe}") as (processor, seen):
            texts = [f"m{number}" for number in range(50)]
            submit(processor, *texts)
            assert await tasks.happens(here, PATIENCE_S)
            victim = processor.pid
            os.kill(victim, signal.SIGKILL)
            await answered(processor)
            assert seen.order == texts
            assert seen.deaths == [("m7", "its worker died: signal 9")]
            assert processor.pid != victim

    asyncio.run(scenario())


def test_a_worker_killed_while_it_has_nothing_to_do_costs_no_message():
    async def scenario():
        async with running("echo") as (processor, seen):
            submit(processor, "before")
            await answered(processor)
            os.kill(processor.pid, signal.SIGKILL)
            pidfd = os.pidfd_open(processor.pid)
            select.select([pidfd], [], [], PATIENCE_S)  # it is dead, but the event loop does not know yet
            os.close(pidfd)
            submit(processor, "1", "2")
            await answered(processor)
            assert seen.results == [b"before", b"1", b"2"]

    asyncio.run(scenario())


def test_an_answer_that_crosses_the_end_of_its_time_is_taken_and_costs_no_other_message(tmp_path):
    """The worker had answered the first and begun the second when it was killed for the first."""

    async def scenario():
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        async with running(f"wait_once?at=two&path={pipe}") as (processor, seen):
            submit(processor, "one", "two", "three")
            pipe.read_bytes()  # the event loop stands still until the worker is at the second
            processor._head_since -= 2 * PATIENCE_S
            processor._check_deadline()
            await answered(processor)
            assert seen.reports == [("one", b"one"), ("two", b"two"), ("three", b"three")]

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("blow", ["hang", "freeze"])
def test_another_topic_is_not_disturbed_by_one_that_hangs(blow, tmp_path):
    async def scenario():
        async with (
            running("noted?path=/dev/null", topic="bad") as (bad, seen_bad),
            running("echo", topic="good") as (good, seen_good),
        ):
            submit(bad, blow, *range(40))
            submit(good, *range(1000))
            await answered(good)
            assert len(seen_good.results) == 1000
            assert seen_bad.reports == []
            assert bad.backlog == 41

    asyncio.run(scenario())


def test_a_worker_that_cannot_be_replaced_lets_messages_die_until_it_can(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "shaky.py"
    code = "import os\ndef go(message, spool):\n    return message.data if message.data != b'exit' else os._exit(1)\n"
    module.write_text(code)

    async def scenario():
        seen = Seen()

        def mend(message, reason):
            seen.dead(message, reason)
            if message.text == "lost":
                module.write_text(code)

        processor = TopicProcessor(
            "cam", "shaky:go", spool_size=3, limit_s=PATIENCE_S, on_result=seen.result, on_dead=mend
        )
        await processor.start()
        module.write_text("raise OSError('the disk is gone')")
        submit(processor, "1", "exit", "also lost")
        processor.remember(message("r"))
        submit(processor, "lost")
        await answered(processor)
        submit(processor, "2")
        await answered(processor)
        spool = [m.text for m in processor.spool]
        await processor.stop()
        assert seen.results == [b"1", b"2"]
        assert [text for text, _ in seen.deaths] == ["exit", "also lost", "lost"]
        for _, reason in seen.deaths[1:]:
            assert reason.startswith("its worker cannot start: processor 'shaky:go': module 'shaky' cannot be imported")
            assert reason.endswith("OSError: the disk is gone")
        assert spool == ["r", "lost", "2"]

    asyncio.run(scenario())


def test_pauses_between_starts_grow_to_a_limit():
    pauses = [0.0]
    for _ in range(10):
        pauses.append(processor_module._longer(pauses[-1]))

    assert pauses[:4] == [0.0, 0.1, 0.2, 0.4]
    assert pauses[-1] == processor_module.LAST_PAUSE_S


def test_a_report_that_fails_does_not_stop_the_next_ones():
    async def scenario():
        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))
        async with running("echo") as (processor, seen):
            assert seen.reports == []
            processor._on_result = lambda message, result: 1 / 0
            submit(processor, *range(30))
            await answered(processor)
        assert [type(failure) for failure in failures] == [ZeroDivisionError] * 30

    asyncio.run(scenario())


# Start and stop.


def test_a_worker_is_replaced_even_if_the_current_folder_is_gone(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert see("texts", "exit", "fine", spool_size=1).results == [b'["fine"]']


def test_a_processor_beside_where_the_agent_was_started_is_found(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("def go(message, spool):\n    return 'found'\n")
    monkeypatch.chdir(tmp_path)

    async def scenario():
        seen = Seen()
        processor = TopicProcessor(
            "cam", "beside:go", spool_size=0, limit_s=9, on_result=seen.result, on_dead=seen.dead
        )
        await processor.start()
        submit(processor, "x")
        await answered(processor)
        await processor.stop()
        return seen.results

    assert asyncio.run(scenario()) == [b"found"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import nothing_like_this", "No module named 'nothing_like_this'"),
        ("import os; os._exit(7)", "its worker died while it started: exit code 7"),
        ("import sys; sys.exit('no')", "SystemExit: no"),
        ("def og(message, spool): pass", "has no function 'go'"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_said_at_the_start(code, said, tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario():
        processor = TopicProcessor("cam", "faulty:go", spool_size=0, limit_s=1, on_result=print, on_dead=print)
        with pytest.raises(BadInput, match="faulty:go") as problem:
            await processor.start()
        assert said in str(problem.value)
        assert processor.pid is None
        await processor.stop()

    asyncio.run(scenario())


def test_stopping_twice_and_without_a_start_is_fine():
    async def scenario():
        never = TopicProcessor("cam", "burn", spool_size=0, limit_s=1, on_result=print, on_dead=print)
        await never.stop()
        async with running("echo") as (processor, seen):
            await asyncio.gather(processor.stop(), processor.stop())
            await processor.stop()
            submit(processor, "too late")
            await answered(processor)
            assert seen.reports == []
            assert processor.backlog == 0

    asyncio.run(scenario())


@pytest.mark.slow
def test_stopping_drops_what_waits_and_ends_a_worker_that_hangs():
    async def scenario():
        async with running("noted?path=/dev/null") as (processor, seen):
            submit(processor, "hang", *range(100))
            waiting = asyncio.create_task(processor.drained())
            await asyncio.sleep(0)
            await processor.stop()
            async with asyncio.timeout(PATIENCE_S):
                await waiting
            assert seen.reports == []

    asyncio.run(scenario())


def test_a_start_can_be_given_up(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text("while True: pass")
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario():
        processor = TopicProcessor("cam", "slow:go", spool_size=0, limit_s=1, on_result=print, on_dead=print)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await processor.start()

        other = TopicProcessor("cam", "slow:go", spool_size=0, limit_s=1, on_result=print, on_dead=print)
        starting = asyncio.create_task(other.start())
        await asyncio.sleep(0)
        await other.stop()
        with pytest.raises(RuntimeError, match="was stopped"):
            await starting

    asyncio.run(scenario())


def test_an_agent_that_forgets_to_stop_leaves_no_process():
    async def scenario():
        processor = TopicProcessor("cam", f"{HELPERS}:echo", spool_size=0, limit_s=9, on_result=print, on_dead=print)
        await processor.start()

    asyncio.run(scenario())


AGENT = """
import asyncio, sys
from trimtab.fleet.protocol.message import Message
from trimtab.fleet.broker.processing.processor import TopicProcessor

async def agent():
    processor = TopicProcessor("cam", sys.argv[1], spool_size=0, limit_s=900, on_result=print, on_dead=print)
    await processor.start()
    print(processor.pid, flush=True)
    processor.submit(Message("cam", b"x"))
    await processor.drained()
    print("answered", flush=True)
    await asyncio.Event().wait()

asyncio.run(agent())
"""


@pytest.mark.parametrize("function", ["echo", "forever"])
def test_a_killed_agent_leaves_no_worker(function):
    """Neither one that waits for a message nor one that is in an endless loop."""
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, f"{HELPERS}:{function}"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as agent:
        worker = os.pidfd_open(int(agent.stdout.readline()))
        told = agent.stderr if function == "forever" else agent.stdout  # a worker prints to standard error
        assert told.readline()
        agent.kill()
        ended, _, _ = select.select([worker], [], [], PATIENCE_S)
        os.close(worker)

    assert ended


# Specifications.


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("frobnicate", "has no colon"),
        ("", "has no colon"),
        ("module:", "does not name a function"),
        (":function", "does not name a function"),
        ("a..b:c", "does not name a function"),
        ("a b:c", "does not name a function"),
        ("a:b?ms", "NAME=VALUE"),
        ("a:b?m-s=1", "'m-s'"),
        ("burn?ms=1&ms=2", "'ms' twice"),
    ],
)
def test_a_specification_without_the_right_form_is_refused_without_an_import(spec, said):
    with pytest.raises(BadInput, match=f"processor '.*{said}"):
        parse(spec)
    with pytest.raises(BadInput, match="processor"):
        TopicProcessor("cam", spec, spool_size=0, limit_s=1, on_result=print, on_dead=print)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nowhere.at_all:go", "module 'nowhere.at_all' cannot be imported: ModuleNotFoundError: No module named"),
        (f"{HELPERS}:ecko", "has no function 'ecko'; close to it: echo"),
        (f"{HELPERS}:NOT_A_FUNCTION", "is a int, but a processor must be a function"),
        (f"{HELPERS}:later", "is an async function"),
        (f"{HELPERS}:scaled?times=3", "got an unexpected keyword argument 'times'"),
        (f"{HELPERS}:contextlib", "is a module"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused(spec, said):
    parse(spec)
    with pytest.raises(BadInput) as problem:
        load(spec)
    assert said in str(problem.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20", 20),
        ("2.5", 2.5),
        ("true", True),
        ("null", None),
        ("fast", "fast"),
        ("NaN", "NaN"),
        ("[1]", "[1]"),
        ("", ""),
    ],
)
def test_arguments_are_json_scalars_or_text(text, value):
    assert load(f"{HELPERS}:scaled?by={text}").keywords == {"by": value}


@pytest.mark.parametrize(
    ("result", "data"),
    [(b"as is", b"as is"), (bytearray(b"x"), b"x"), ("ü", b"\xc3\xbc"), ({"a": [1]}, b'{"a": [1]}'), (2, b"2")],
)
def test_results_become_bytes(result, data):
    assert encode(result) == data


@pytest.mark.parametrize("result", [{1, 2}, float("nan"), object()])
def test_a_result_that_is_no_json_is_refused(result):
    with pytest.raises(TypeError, match="must be bytes, text or fit for JSON"):
        encode(result)


@pytest.mark.parametrize(("knob", "value"), [("spool_size", -1), ("limit_s", 0.0), ("limit_s", float("nan"))])
def test_knobs_outside_their_range_are_refused(knob, value):
    knobs = {"spool_size": 0, "limit_s": 1.0, knob: value}

    with pytest.raises(BadInput, match=knob):
        TopicProcessor("cam", "burn", **knobs, on_result=print, on_dead=print)
