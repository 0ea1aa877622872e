"""JetStream as a source of rows: the client, the partitions, and the whole way into Spark."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import pickle
import socket
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from helpers.waiting import until_blocking
from trimtab.errors import BadInput, BadKnob, TooLarge, UnknownName, Unreachable
from trimtab.fleet.site.credentials import make_tls
from trimtab.fleet.site.server import free_ports
from trimtab.pipeline.nats import jetstream as asking
from trimtab.pipeline.nats import publishing, reading
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.nats.reading import Rows
from trimtab.pipeline.nats.source import SMALL, NatsSource, NatsStreamReader, Options, as_batch, cut
from trimtab.pipeline.nats.wire import Server, Wire

HOST = "127.0.0.1"
# A few messages come by direct get, many through a consumer; both must behave the same.
WAYS = {"direct get": 10**9, "consumer": 0}


@pytest.fixture(params=WAYS, ids=WAYS.keys())
def way(request, monkeypatch):
    monkeypatch.setattr(asking, "FEW", WAYS[request.param])


def read(server, stream, low=1, high=10**9, **more):
    with JetStream(server) as jetstream:
        return list(jetstream.read(stream, low, high, **more))


def seqs(batches):
    return [seq for rows in batches for seq in rows.seq]


def datas(batches):
    return [data for rows in batches for data in rows.data]


def numbers(low, high):
    return [b"%d" % number for number in range(low, high + 1)]


# Reading.


@pytest.mark.usefixtures("way")
def test_what_was_published_is_read_in_order(nats, stream):
    messages = [(f"{stream}.käse.{n}", f"n° {n}".encode() * (n % 3), f"id·{n}") for n in range(50)]
    with JetStream(nats.server) as jetstream:
        jetstream.publish(messages)

    batches = read(nats.server, stream, batch=7)

    assert seqs(batches) == list(range(1, 51))
    came = [
        (subject.decode(), data, name.decode())
        for rows in batches
        for subject, data, name in zip(rows.subject, rows.data, rows.message_id, strict=True)
    ]
    assert came == messages
    assert {len(rows) for rows in batches} == {7, 1}


@pytest.mark.usefixtures("way")
def test_headers_may_be_any_or_none(nats, stream):
    async def publish(jetstream):
        await jetstream.publish(f"{stream}.a", b"no header")
        await jetstream.publish(f"{stream}.a", b"", headers={"Nats-Sequence": "7", "X": "y"})
        await jetstream.publish(f"{stream}.a", b"all\r\nMSG\r\n", headers={"X": "y", "Nats-Msg-Id": "m", "Z": ""})

    nats.do(publish)
    (rows,) = read(nats.server, stream)

    assert rows.seq == [1, 2, 3]
    assert rows.data == [b"no header", b"", b"all\r\nMSG\r\n"]
    assert rows.message_id == [None, None, b"m"]


@pytest.mark.usefixtures("way")
def test_the_time_is_when_it_was_stored(nats, stream):
    before = datetime.datetime.now(datetime.UTC)
    nats.fill(stream, 3)
    after = datetime.datetime.now(datetime.UTC)

    (rows,) = read(nats.server, stream)

    times = [datetime.datetime.fromtimestamp(each / 1e6, datetime.UTC) for each in rows.time_us]
    assert before <= times[0] <= times[1] <= times[2] <= after


def test_both_ways_tell_the_same(nats, stream, monkeypatch):
    nats.fill(stream, 100)

    told = []
    for few in WAYS.values():
        monkeypatch.setattr(asking, "FEW", few)
        told.append(read(nats.server, stream))

    assert told[0] == told[1]


@pytest.mark.usefixtures("way")
def test_a_message_that_is_larger_than_a_batch_may_be_comes_all_the_same(nats, stream, monkeypatch):
    monkeypatch.setattr(reading, "BATCH_BYTES", 1000)
    sizes = [10, 5000, 10, 100_000, 900_000, 0]
    with JetStream(nats.server) as jetstream:
        jetstream.publish((f"{stream}.x", b"x" * size, f"{n}") for n, size in enumerate(sizes))

    assert [len(data) for data in datas(read(nats.server, stream))] == sizes


@pytest.mark.usefixtures("way")
def test_only_the_range_is_read(nats, stream):
    nats.fill(stream, 30)

    assert datas(read(nats.server, stream, 5, 9)) == numbers(5, 9)
    assert datas(read(nats.server, stream, 9, 9)) == numbers(9, 9)
    assert datas(read(nats.server, stream, 9, 8)) == []
    assert datas(read(nats.server, stream, -3, 2)) == numbers(1, 2)
    assert datas(read(nats.server, stream, 31, 99)) == []


@pytest.mark.usefixtures("way")
def test_an_empty_stream_has_nothing(nats, stream):
    assert read(nats.server, stream) == []
    with JetStream(nats.server) as jetstream:
        state = jetstream.info(stream)
    assert (state.first, state.last, state.messages) == (1, 0, 0)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("low", "high"), [(1, 60), (1, 10), (15, 25), (20, 40), (21, 29), (30, 60), (45, 45), (46, 60)]
)
def test_sequences_that_are_gone_are_left_out(nats, stream, low, high):
    """1 to 20 were purged, 25 to 35 and 45 to 60 were deleted one by one."""
    gone = {*range(1, 21), *range(25, 36), *range(45, 61)}

    async def remove(jetstream):
        await jetstream.purge_stream(stream, seq=21)
        for seq in sorted(gone)[20:]:
            await jetstream.delete_msg(stream, seq)

    nats.fill(stream, 60)
    nats.do(remove)

    left = [seq for seq in range(low, high + 1) if seq not in gone]
    assert seqs(read(nats.server, stream, low, high, batch=4)) == left


@pytest.mark.usefixtures("way")
def test_all_of_the_stream_may_be_purged(nats, stream):
    nats.fill(stream, 20)
    nats.do(lambda jetstream: jetstream.purge_stream(stream))

    assert read(nats.server, stream, 1, 20) == []
    with JetStream(nats.server) as jetstream:
        state = jetstream.info(stream)
    assert (state.first, state.last, state.messages) == (21, 20, 0)


@pytest.mark.usefixtures("way")
def test_a_stream_that_rolls_over_has_its_newest_messages(nats):
    nats.add_stream("rolling", max_msgs=10)
    nats.fill("rolling", 35)

    assert datas(read(nats.server, "rolling", 1, 35)) == numbers(26, 35)


@pytest.mark.usefixtures("way")
def test_what_is_purged_while_it_is_read_is_left_out(nats, stream):
    nats.fill(stream, 50)

    with JetStream(nats.server) as jetstream:
        reading = jetstream.read(stream, 1, 50, batch=10)
        first = next(reading)
        nats.do(lambda js: js.purge_stream(stream, seq=31))
        rest = list(reading)

    assert datas([first, *rest]) == numbers(1, 10) + numbers(31, 50)


def test_a_stream_without_direct_get_is_read_as_well(nats):
    nats.add_stream("indirect", allow_direct=False)
    nats.fill("indirect", 20)

    assert datas(read(nats.server, "indirect")) == numbers(1, 20)


@pytest.mark.usefixtures("way")
def test_a_reader_leaves_no_consumer_behind(nats, stream):
    nats.fill(stream, 50)

    with JetStream(nats.server) as jetstream:
        assert len(list(jetstream.read(stream, 1, 50, batch=10))) == 5
        given_up = jetstream.read(stream, 1, 50, batch=10)
        next(given_up)
        given_up.close()

    assert nats.do(lambda js: js.consumers_info(stream)) == []


@pytest.mark.usefixtures("way")
def test_other_questions_may_be_asked_between_batches(nats, stream):
    nats.fill(stream, 40)

    came = []
    with JetStream(nats.server) as jetstream:
        for one, other in zip(
            jetstream.read(stream, 1, 20, batch=5), jetstream.read(stream, 21, 40, batch=5), strict=True
        ):
            came += [one, other]
            assert jetstream.info(stream).last == 40

    assert sorted(seqs(came)) == list(range(1, 41))


# Trouble on the way.


class Cutter:
    """Forwards connections to a server, and cuts them after so many bytes from it; then it cuts no more."""

    def __init__(self, server, after, times=1):
        self._target = server.address
        self._after, self._left = after, times
        self._listener = socket.create_server((HOST, 0))
        self.server = replace(server, url=f"nats://{HOST}:{self._listener.getsockname()[1]}")
        self.cuts = 0
        self._sockets = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                limit = self._after if self.cuts < self._left else None
                for source, sink, most in ((near, far, None), (far, near, limit)):
                    self._threads.append(threading.Thread(target=self._forward, args=(source, sink, most)))
                    self._threads[-1].start()

    def _forward(self, source, sink, most):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if most is not None and len(data) >= most:
                    self.cuts += 1
                    sink.sendall(data[:most])
                    break
                most = most and most - len(data)
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._sockets):
            each.close()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("after", [1, 700, 1500, 5000, 7777, 9999])
def test_a_connection_that_is_cut_loses_and_repeats_nothing(nats, stream, after):
    nats.fill(stream, 100)

    with Cutter(nats.server, after) as cutter:
        batches = read(cutter.server, stream, batch=40)

    assert cutter.cuts == 1
    assert datas(batches) == numbers(1, 100)


@pytest.mark.usefixtures("way")
def test_connections_that_are_cut_time_and_again_still_get_on(nats, stream):
    nats.fill(stream, 500)

    with Cutter(nats.server, 5000, times=5) as cutter:
        batches = read(cutter.server, stream, batch=1000)

    assert cutter.cuts == 5
    assert datas(batches) == numbers(1, 500)


def test_who_never_gets_on_gives_up(nats, stream):
    nats.fill(stream, 10)

    with (
        Cutter(nats.server, 200, times=1000) as cutter,
        pytest.raises(Unreachable, match="after 3 attempts: the server"),
    ):
        JetStream(cutter.server, attempts=3).__enter__()


@pytest.mark.usefixtures("way")
def test_a_server_that_is_killed_and_started_again_is_read_on(start_nats):
    own = start_nats()
    own.add_stream("S")
    own.fill("S", 3000)

    with JetStream(own.server) as jetstream:
        reading = jetstream.read("S", 1, 3000, batch=500)
        batches = [next(reading), next(reading)]
        own.restart()
        batches += reading

    assert datas(batches) == numbers(1, 3000)


@pytest.mark.usefixtures("way")
def test_a_server_that_does_not_come_back_is_given_up(start_nats):
    own = start_nats()
    own.add_stream("S")
    own.fill("S", 100)

    with JetStream(own.server, attempts=3) as jetstream:
        reading = jetstream.read("S", 1, 100, batch=10)
        assert next(reading).data == numbers(1, 10)
        own.kill()
        with pytest.raises(Unreachable, match="after 3 attempts: Connection refused"):
            next(reading)
        with pytest.raises(Unreachable, match="after 3 attempts: Connection refused"):
            jetstream.publish([("S.x", b"", "1")])


@pytest.mark.usefixtures("way")
def test_a_stream_that_is_deleted_while_it_is_read_is_told(nats, stream):
    nats.fill(stream, 100)

    with JetStream(nats.server) as jetstream:
        reading = jetstream.read(stream, 1, 100, batch=10)
        next(reading)
        nats.do(lambda js: js.delete_stream(stream))
        with pytest.raises(UnknownName, match=f"there is no stream '{stream}'"):
            list(reading)


@pytest.mark.usefixtures("way")
def test_a_message_that_is_lost_on_the_way_is_asked_for_again(nats, stream, monkeypatch):
    nats.fill(stream, 100)
    receive, lost = Wire.receive, []

    def forgetful(wire):
        came = receive(wire)
        for at, (_, _, data) in enumerate(came):
            if data in (b"50", b"100") and data not in lost:
                lost.append(data)
                return came[:at] + came[at + 1 :]
        return came

    monkeypatch.setattr(Wire, "receive", forgetful)
    monkeypatch.setattr("trimtab.pipeline.nats.wire.SILENCE_S", 0.2)  # the last one is missed by its silence only
    batches = read(nats.server, stream, 1, 100)

    assert lost == [b"50", b"100"]
    assert datas(batches) == numbers(1, 100)


@pytest.mark.usefixtures("way")
def test_a_replica_that_is_behind_is_not_believed(nats, stream, monkeypatch):
    nats.fill(stream, 20)
    answers = []

    def behind(fetch):
        def fetched(self, at, high, batch, rows):
            answers.append(at)
            if len(answers) > 2:
                return fetch(self, at, high, batch, rows)
            if at <= 10:
                fetch(self, at, 10, batch, rows)
            return None

        return fetched

    for source in (reading.Direct, reading.Consumer):
        monkeypatch.setattr(source, "fetch", behind(source.fetch))

    assert datas(read(nats.server, stream, 1, 20)) == numbers(1, 20)
    assert answers == [1, 11, 11]


def test_a_server_in_silence_is_taken_for_gone(monkeypatch):
    monkeypatch.setattr("trimtab.pipeline.nats.wire.CONNECT_S", 0.05)
    with socket.create_server((HOST, 0)) as silent:
        server = Server(f"nats://{HOST}:{silent.getsockname()[1]}", "", "")
        with pytest.raises(Unreachable, match="after 2 attempts: timed out"):
            JetStream(server, attempts=2).__enter__()


# What cannot be.


def test_nobody_at_the_port_is_told(nats):
    (port,) = free_ports(HOST, 1)

    with pytest.raises(Unreachable) as caught:
        JetStream(replace(nats.server, url=f"nats://{HOST}:{port}"), attempts=2).__enter__()

    assert str(caught.value) == f"{HOST}:{port} could not be reached after 2 attempts: Connection refused"


def test_wrong_credentials_are_told_at_once(nats):
    with pytest.raises(BadInput, match=r"refuses this user and password \(Authorization Violation\)"):
        JetStream(replace(nats.server, password="wrong")).__enter__()


def test_what_is_not_allowed_is_told(start_nats):
    allowed = {"publish": {"deny": ["$JS.API.STREAM.INFO.*"]}}
    users = [{"user": "me", "password": "open-sesame", "permissions": allowed}]
    own = start_nats(authorization={"users": users})

    with (
        JetStream(own.server) as jetstream,
        pytest.raises(BadInput, match="does not allow that: Permissions Violation"),
    ):
        jetstream.info("S")


def test_a_stream_that_does_not_exist_is_told_with_those_that_do(start_nats):
    own = start_nats()
    own.add_stream("orders")

    with JetStream(own.server) as jetstream:
        with pytest.raises(UnknownName, match=r"there is no stream 'order'; did you mean 'orders'\? known: orders"):
            jetstream.info("order")
        for high in (1, 100_000):
            with pytest.raises(UnknownName, match="there is no stream 'order'"):
                next(jetstream.read("order", 1, high))


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", "a\nb"])
def test_names_that_no_stream_can_have_are_refused(nats, name):
    with JetStream(nats.server) as jetstream, pytest.raises(BadInput, match="cannot be the name of a stream"):
        jetstream.info(name)


@pytest.mark.parametrize("url", ["http://here", "nats://", "nats://here:port", ""])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(BadInput, match=r"is no address of a server; one looks like nats://host:4222"):
        JetStream(Server(url, "me", "x")).__enter__()


def test_addresses_are_taken_as_people_write_them():
    assert Server("nats://here:1", "", "").address == ("here", 1)
    assert Server("here:1", "", "").address == ("here", 1)
    assert Server("tls://here", "", "").address == ("here", 4222)
    assert Server("nats://[::1]:1", "", "").address == ("::1", 1)


def test_something_else_that_listens_is_told():
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]

        def answer():
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"220 smtp ready\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(BadInput, match="is no NATS server: it sends b'220 smtp ready'"):
            JetStream(Server(f"nats://{HOST}:{port}", "", "")).__enter__()
        thread.join()


def test_a_domain_that_does_not_exist_is_told(start_nats):
    own = start_nats()

    jetstream = JetStream(replace(own.server, domain="elsewhere"), attempts=2)
    with jetstream, pytest.raises(Unreachable, match="does JetStream of domain 'elsewhere' run there"):
        jetstream.info("S")


def test_passwords_are_not_shown():
    assert "sesame" not in repr(Server("nats://here", "me", "sesame"))
    assert pickle.loads(pickle.dumps(Server("nats://here", "me", "sesame"))).password == "sesame"


# TLS and domains.


@pytest.fixture
def tls(tmp_path):
    return make_tls(tmp_path, [HOST])


@pytest.fixture
def secure(tls, start_nats):
    return start_nats(tls={"cert_file": tls.cert, "key_file": tls.key})


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_everything_works_over_tls(secure, tls, scheme):
    url = f"{scheme}://{HOST}:{secure.server.address[1]}"
    with JetStream(replace(secure.server, url=url, ca=tls.ca)) as jetstream:
        jetstream._ask("STREAM.CREATE.S", {"name": "S", "subjects": ["S"], "storage": "memory"})
        jetstream.publish(("S", b"x" * 1000, f"{n}") for n in range(5000))
        batches = list(jetstream.read("S", 1, 5000))

    assert seqs(batches) == list(range(1, 5001))
    assert set(datas(batches)) == {b"x" * 1000}


def test_a_server_that_wants_tls_is_told(secure):
    with pytest.raises(BadInput, match="wants TLS: give the file of its certificate authority as ca"):
        JetStream(secure.server).__enter__()


def test_a_certificate_of_somebody_else_is_not_trusted(secure, tmp_path):
    other = make_tls(tmp_path / "other", [HOST])

    with pytest.raises(BadInput, match="cannot be trusted"):
        JetStream(replace(secure.server, ca=other.ca)).__enter__()
    with pytest.raises(BadInput, match="cannot be trusted"):
        JetStream(replace(secure.server, url=secure.server.url.replace("nats", "tls"))).__enter__()


def test_no_password_is_sent_where_tls_is_wanted_and_missing(nats, tls):
    with pytest.raises(BadInput, match="does not offer TLS, and without TLS no password is sent there"):
        JetStream(replace(nats.server, ca=tls.ca)).__enter__()


@pytest.mark.usefixtures("way")
def test_a_stream_of_another_domain_is_reached_through_a_leaf(start_nats):
    (port,) = free_ports(HOST, 1)
    hub = start_nats(jetstream={"domain": "hub"}, leafnodes={"listen": f"{HOST}:{port}"})
    remote = {"url": f"nats-leaf://me:open-sesame@{HOST}:{port}"}
    leaf = start_nats(jetstream={"domain": "b1"}, leafnodes={"remotes": [remote]})
    leaf.add_stream("S")
    leaf.fill("S", 100)

    with JetStream(replace(hub.server, domain="b1")) as jetstream:
        assert jetstream.info("S").last == 100
        assert datas(jetstream.read("S", 1, 100, batch=30)) == numbers(1, 100)


# Publishing.


def test_messages_with_the_same_id_are_stored_once(nats, stream):
    messages = [(f"{stream}.x", b"%d" % n, f"id-{n}") for n in range(10_000)]
    with JetStream(nats.server) as jetstream:
        assert jetstream.publish(messages[:6000]) == 0
        assert jetstream.publish(messages) == 6000
        assert jetstream.publish([]) == 0

    assert datas(read(nats.server, stream)) == [data for _, data, _ in messages]


def test_a_server_restart_in_the_middle_of_publishing_stores_each_once(start_nats):
    own = start_nats()
    own.add_stream("S")

    def messages():
        for n in range(1, 12_001):
            if n in (5000, 9000):
                own.restart()
            yield "S.x", b"%d" % n, f"id-{n}"

    with JetStream(own.server) as jetstream:
        assert jetstream.publish(messages()) == 0

    assert sorted(int(data) for data in datas(read(own.server, "S"))) == list(range(1, 12_001))


@pytest.mark.parametrize("after", [650, 1000, 20_000, 33_333])
def test_acknowledgements_that_are_cut_off_repeat_no_message(nats, stream, after):
    with Cutter(nats.server, after) as cutter, JetStream(cutter.server) as jetstream:
        assert jetstream.publish((f"{stream}.x", b"%d" % n, f"{n}") for n in range(1, 2001)) == 0

    assert cutter.cuts == 1
    assert datas(read(nats.server, stream)) == numbers(1, 2000)


def test_large_messages_do_not_pile_up(nats, stream, monkeypatch):
    monkeypatch.setattr(publishing, "WINDOW_BYTES", 1 << 20)
    with JetStream(nats.server) as jetstream:
        jetstream.publish((f"{stream}.x", b"x" * 300_000, f"{n}") for n in range(20))

    assert len(seqs(read(nats.server, stream))) == 20


def test_what_a_stream_refuses_is_told_with_its_reason(nats):
    nats.add_stream("full", max_msgs=3, discard="new")

    with JetStream(nats.server) as jetstream, pytest.raises(BadInput, match=r"'full\.x' was refused: maximum messages"):
        jetstream.publish(("full.x", b"", f"{n}") for n in range(5))


def test_a_subject_that_no_stream_takes_is_told(nats):
    with JetStream(nats.server, attempts=2) as jetstream, pytest.raises(Unreachable, match="published to 'nowhere'"):
        jetstream.publish([("nowhere", b"", "1")])


@pytest.mark.parametrize(
    ("subject", "name", "said"),
    [
        ("a b", "1", "cannot be published to"),
        ("", "1", "cannot be published to"),
        ("a\r\nPUB", "1", "cannot be published to"),
        ("a", "", "cannot be a message id"),
        ("a", "x\r\ny: z", "cannot be a message id"),
    ],
)
def test_subjects_and_ids_cannot_smuggle_anything_in(nats, subject, name, said):
    with JetStream(nats.server) as jetstream, pytest.raises(BadInput, match=said):
        jetstream.publish([(subject, b"", name)])


def test_a_message_that_no_server_takes_is_refused_before_it_is_sent(nats, stream):
    with JetStream(nats.server) as jetstream, pytest.raises(TooLarge, match="but the server takes 1,048,576"):
        jetstream.publish([(f"{stream}.x", bytes(1 << 20), "1")])


# Ranges.


@given(low=st.integers(1, 10**6), count=st.integers(-5, 10**5), partitions=st.integers(1, 64))
def test_partitions_cover_every_sequence_once(low, count, partitions):
    parts = cut(low, low + count - 1, partitions)

    covered = [part.high - part.low + 1 for part in parts]
    assert sum(covered) == max(0, count)
    assert all(this.high + 1 == following.low for this, following in itertools.pairwise(parts))
    if parts:
        assert (parts[0].low, parts[-1].high) == (low, low + count - 1)
        assert max(covered) - min(covered) <= 1
        assert len(parts) == (partitions if count >= SMALL else 1)


def test_there_are_never_more_partitions_than_sequences():
    assert len(cut(1, SMALL, 10**6)) == SMALL


# Options.


def options(nats, stream, **more):
    return {"url": nats.server.url, "user": "me", "password": nats.server.password, "stream": stream, **more}


@pytest.mark.parametrize(
    ("given_options", "kind", "said"),
    [
        ({"stream": "S"}, BadInput, "needs the option 'url'"),
        ({"url": "nats://here"}, BadInput, "needs the option 'stream'"),
        ({"url": "u", "stream": "S", "partition": "2"}, UnknownName, "did you mean 'partitions'"),
        ({"url": "u", "stream": "S", "partitions": "0"}, BadKnob, "partitions must be a whole number, at least 1"),
        ({"url": "u", "stream": "S", "max_rows": "many"}, BadKnob, "max_rows must be a whole number, at least 1"),
        ({"url": "u", "stream": "S", "low": "-1"}, BadKnob, "low must be a whole number, at least 1, but is '-1'"),
    ],
)
def test_options_that_make_no_sense_are_told(given_options, kind, said):
    with pytest.raises(kind, match=said):
        Options.of(given_options)


def test_text_that_is_no_unicode_is_shown_as_far_as_it_is():
    batch = as_batch(Rows([1, 2], [0, 1], [b"a\xff", b"b"], [b"\xff", b""], [None, b"\xfe"]))

    assert batch.column("subject").to_pylist() == ["a�", "b"]
    assert batch.column("data").to_pylist() == [b"\xff", b""]
    assert batch.column("message_id").to_pylist() == [None, "�"]


# Offsets.


def stream_reader(nats, stream, **more):
    return NatsStreamReader(Options.of(options(nats, stream, **more)))


def test_a_stream_is_read_from_its_first_message_or_from_the_one_wanted(nats, stream):
    nats.fill(stream, 20)
    nats.do(lambda jetstream: jetstream.purge_stream(stream, seq=6))

    assert stream_reader(nats, stream).initialOffset() == {"seq": 5}
    assert stream_reader(nats, stream, start="11").initialOffset() == {"seq": 10}
    assert stream_reader(nats, stream, start="21").initialOffset() == {"seq": 20}


def test_a_start_that_is_yet_to_come_is_refused(nats, stream):
    nats.fill(stream, 20)

    with pytest.raises(
        BadInput, match=r"start is 22, but the last message of stream .* is 20: start may be 21 at most"
    ):
        stream_reader(nats, stream, start="22").initialOffset()


def test_an_offset_is_as_far_as_the_limit_lets_it(nats, stream):
    nats.fill(stream, 20)
    reader = stream_reader(nats, stream, max_rows="7")

    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert reader.latestOffset({"seq": 0}, ReadMaxRows(7)) == {"seq": 7}
    assert reader.latestOffset({"seq": 14}, ReadMaxRows(7)) == {"seq": 20}
    assert reader.latestOffset({"seq": 20}, ReadMaxRows(7)) == {"seq": 20}
    assert reader.latestOffset({"seq": 0}, ReadAllAvailable()) == {"seq": 20}
    assert reader.reportLatestOffset() == {"seq": 20}
    assert stream_reader(nats, stream).getDefaultReadLimit() == ReadAllAvailable()


def test_what_was_purged_does_not_count(nats, stream):
    nats.fill(stream, 20)
    nats.do(lambda jetstream: jetstream.purge_stream(stream, seq=11))
    reader = stream_reader(nats, stream)

    assert reader.latestOffset({"seq": 2}, ReadMaxRows(4)) == {"seq": 14}
    (part,) = reader.partitions({"seq": 2}, {"seq": 14})
    assert (part.low, part.high) == (11, 14)


def test_a_stream_that_was_purged_altogether_has_nothing_new(nats, stream):
    nats.fill(stream, 20)
    nats.do(lambda jetstream: jetstream.purge_stream(stream))
    reader = stream_reader(nats, stream)

    end = reader.latestOffset({"seq": 5}, ReadMaxRows(4))
    assert reader.partitions({"seq": 5}, end) == []
    assert reader.latestOffset({"seq": 20}, ReadMaxRows(4)) == {"seq": 20}


def test_a_stream_that_was_made_anew_is_not_taken_for_the_old_one(nats, stream):
    nats.fill(stream, 20)

    with pytest.raises(BadInput, match="ends at 20, but was read up to 21 before: it was deleted and created again"):
        stream_reader(nats, stream).latestOffset({"seq": 21}, ReadAllAvailable())


def test_what_comes_after_the_start_is_left_for_the_next_run(nats, stream):
    nats.fill(stream, 20)
    reader = stream_reader(nats, stream)
    reader.prepareForTriggerAvailableNow()
    nats.fill(stream, 10, first=21)

    assert reader.latestOffset({"seq": 0}, ReadMaxRows(15)) == {"seq": 15}
    assert reader.latestOffset({"seq": 15}, ReadMaxRows(15)) == {"seq": 20}
    assert reader.latestOffset({"seq": 20}, ReadMaxRows(15)) == {"seq": 20}


# Spark.


@pytest.fixture(scope="session")
def source(spark):
    spark.dataSource.register(NatsSource)
    return spark


def load(source, nats, stream, **more):
    return source.read.format("nats").options(**options(nats, stream, **more)).load()


def test_rows_of_spark_are_the_messages(source, nats, stream):
    async def publish(jetstream):
        await jetstream.publish(f"{stream}.käse", "weiß".encode(), headers={"Nats-Msg-Id": "é"})
        await jetstream.publish(f"{stream}.x", b"")

    before = datetime.datetime.now()
    nats.do(publish)
    frame = load(source, nats, stream)
    rows = frame.collect()

    assert frame.dtypes == [
        ("seq", "bigint"), ("time", "timestamp"), ("subject", "string"), ("data", "binary"), ("message_id", "string"),
    ]  # fmt: skip
    assert [(row.seq, row.subject, bytes(row.data), row.message_id) for row in rows] == [
        (1, f"{stream}.käse", "weiß".encode(), "é"),
        (2, f"{stream}.x", b"", None),
    ]
    assert before <= rows[0].time <= rows[1].time <= datetime.datetime.now()


def test_all_partitions_together_have_each_message_once(source, nats, stream):
    nats.fill(stream, 5000)

    frame = load(source, nats, stream, partitions="3", batch="700")

    assert frame.rdd.getNumPartitions() == 3
    assert sorted(row.seq for row in frame.select("seq").collect()) == list(range(1, 5001))


@pytest.mark.parametrize(
    ("wanted", "left"),
    [({"low": "3", "high": "5"}, [3, 4, 5]), ({"low": "9"}, [9, 10]), ({"high": "1"}, [1]), ({"low": "11"}, [])],
)
def test_a_batch_may_be_a_range(source, nats, stream, wanted, left):
    nats.fill(stream, 10)

    assert [row.seq for row in load(source, nats, stream, **wanted).collect()] == left


def test_spark_finds_nothing_in_an_empty_stream(source, nats, stream):
    assert load(source, nats, stream).collect() == []


def test_spark_tells_what_is_wrong(source, nats):
    with pytest.raises(Exception, match="there is no stream 'missing'"):
        load(source, nats, "missing").collect()


def test_spark_does_not_show_the_password(source, nats, stream, capfd):
    nats.fill(stream, 1)
    frame = load(source, nats, stream)
    frame.explain("extended")
    frame.explain("formatted")

    assert "BatchScan nats" in (shown := capfd.readouterr().out)
    assert nats.server.password not in shown


class Collected:
    """What the micro-batches of a query were, by number; a batch that comes again replaces the first."""

    def __init__(self, fails_at=None):
        self.batches = {}
        self._fails_at = fails_at

    def __call__(self, frame, number):
        self.batches[number] = [row.seq for row in frame.select("seq").collect()]
        if number == self._fails_at:
            raise RuntimeError("on purpose")


def start(source, nats, stream, checkpoint, collected, trigger=None, **more):
    frame = source.readStream.format("nats").options(**options(nats, stream, **more)).load()
    writer = frame.writeStream.foreachBatch(collected).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def test_a_query_reads_in_bounded_batches_and_goes_on_from_its_checkpoint(source, nats, stream, tmp_path):
    nats.fill(stream, 25)
    first, second = Collected(), Collected()

    start(source, nats, stream, tmp_path, first, max_rows="10").awaitTermination()
    nats.fill(stream, 5, first=26)
    start(source, nats, stream, tmp_path, second, max_rows="10").awaitTermination()

    assert first.batches == {0: [*range(1, 11)], 1: [*range(11, 21)], 2: [*range(21, 26)]}
    assert second.batches == {3: [*range(26, 31)]}


def test_a_batch_that_failed_comes_again_as_it_was(source, nats, stream, tmp_path):
    nats.fill(stream, 25)
    failed, again = Collected(fails_at=1), Collected()

    with pytest.raises(Exception, match="on purpose"):
        start(source, nats, stream, tmp_path, failed, max_rows="10").awaitTermination()
    nats.fill(stream, 5, first=26)
    start(source, nats, stream, tmp_path, again, max_rows="10").awaitTermination()

    assert failed.batches == {0: [*range(1, 11)], 1: [*range(11, 21)]}
    assert again.batches == {1: [*range(11, 21)], 2: [*range(21, 31)]}


def test_a_running_query_takes_what_comes(source, nats, stream, tmp_path):
    collected = Collected()
    query = start(
        source, nats, stream, tmp_path, collected, {"processingTime": "0 seconds"}, max_rows="3000", partitions="2"
    )
    try:
        nats.fill(stream, 10)
        until_blocking(lambda: collected.batches)
        nats.fill(stream, 5000, first=11)
        until_blocking(lambda: sum(map(len, collected.batches.values())) == 5010)
        progress = query.lastProgress.json
    finally:
        query.stop()

    assert sorted(seq for batch in collected.batches.values() for seq in batch) == list(range(1, 5011))
    assert max(map(len, collected.batches.values())) <= 3000
    assert nats.server.password not in progress


def test_a_query_says_that_its_stream_was_made_anew(source, nats, stream, tmp_path):
    nats.fill(stream, 25)
    start(source, nats, stream, tmp_path, Collected()).awaitTermination()

    async def remake(jetstream):
        await jetstream.delete_stream(stream)
        await jetstream.add_stream(name=stream, subjects=[f"{stream}.>"])

    nats.do(remake)

    with pytest.raises(Exception, match="ends at 0, but was read up to 25 before: it was deleted and created again"):
        start(source, nats, stream, tmp_path, Collected()).awaitTermination()
