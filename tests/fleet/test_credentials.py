"""Secrets on disk, and TLS that a real handshake accepts."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from trimtab.errors import BadInput
from trimtab.fleet.site import credentials
from trimtab.fleet.site.credentials import FLEET_FILE, Fleet, Tls, client_context, make_tls, read_secret, write_secret

PATIENCE_S = 30.0


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def _open_umask():
    """So that a file is private because it was made so, not because of where the tests run."""
    before = os.umask(0)
    yield
    os.umask(before)


# Files.


@pytest.mark.usefixtures("_open_umask")
def test_a_secret_is_for_its_owner_only_and_so_is_its_folder(tmp_path):
    path = tmp_path / "fleet" / "secret.json"

    write_secret(path, {"password": "x"})

    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert read_secret(path, "") == {"password": "x"}
    assert os.listdir(path.parent) == ["secret.json"]


@pytest.mark.usefixtures("_open_umask")
def test_a_secret_is_private_from_its_first_moment(tmp_path, monkeypatch):
    modes, replace = [], os.replace

    def watched(part, path):
        modes.append(mode(part))
        replace(part, path)

    monkeypatch.setattr(credentials.os, "replace", watched)
    path = tmp_path / "secret.json"
    path.touch(0o666)
    write_secret(path, {})

    assert modes == [0o600]
    assert mode(path) == 0o600


def test_a_folder_that_exists_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o750)

    write_secret(tmp_path / "secret.json", {})

    assert mode(tmp_path) == 0o750


def test_a_write_that_fails_leaves_the_old_secret(tmp_path, monkeypatch):
    path = tmp_path / "secret.json"
    write_secret(path, {"password": "old"})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(credentials.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_secret(path, {"password": "new"})

    assert json.loads(path.read_text()) == {"password": "old"}


def test_the_fleets_secrets_survive_a_restart(tmp_path):
    fleet = Fleet(hub="nats://127.0.0.1:4222", hub_leaf="127.0.0.1:7422", tls=Tls("ca.pem", "cert.pem", "key.pem"))

    path = fleet.save(tmp_path / "home")

    assert path == tmp_path / "home" / FLEET_FILE
    assert Fleet.load(path) == fleet
    assert mode(path) == 0o600


def test_every_fleet_and_every_user_has_a_password_of_its_own():
    one, other = Fleet(), Fleet()

    passwords = {p for fleet in (one, other) for p in (fleet.client, fleet.fleet, fleet.system, fleet.route)}
    assert len(passwords) == 8
    assert min(map(len, passwords)) >= 32


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not JSON: trimtab up or trimtab hub writes it"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'"secret"', "is not a JSON object"),
        (b'{"brokers": {}, "user": "client"}', "is not a fleet file: trimtab up or trimtab hub writes one"),
        (b'{"tls": "yes"}', "is not a fleet file"),
        (b'{"tls": [1]}', "is not a fleet file"),
        (b'{"tls": {"ca": "ca.pem"}}', "is not a fleet file"),
    ],
)
def test_a_file_that_is_no_fleet_file_is_refused(tmp_path, content, sentence):
    path = tmp_path / FLEET_FILE
    path.write_bytes(content)

    with pytest.raises(BadInput) as caught:
        Fleet.load(path)

    assert str(caught.value).startswith(f"{path} {sentence}")


def test_a_file_that_is_not_there_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(BadInput) as caught:
        Fleet.load(tmp_path / FLEET_FILE)

    assert str(caught.value) == f"there is no {tmp_path / FLEET_FILE}: trimtab up or trimtab hub writes it"


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        read_secret(tmp_path, "")


# TLS.


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return make_tls(tmp_path_factory.mktemp("fleet"), ["localhost", "127.0.0.1"])


def contents(tls):
    return [Path(path).read_bytes() for path in (tls.ca, tls.cert, tls.key)]


def handshake(tls, context, host):
    """A client that connects to ``host`` and a server with the fleet's certificate; what the client reads."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tls.cert, tls.key)
    near, far = socket.socketpair()

    def serve():
        try:
            with serving.wrap_socket(far, server_side=True) as secured:
                secured.sendall(b"hello")
        except (OSError, ssl.SSLError):
            far.close()  # the client says what is wrong

    near.settimeout(PATIENCE_S)
    far.settimeout(PATIENCE_S)
    server = threading.Thread(target=serve)
    server.start()
    try:
        with near, context.wrap_socket(near, server_hostname=host) as secured:
            return secured.recv(5)
    finally:
        server.join()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_fleets_certificate_is_good_for_its_hosts(tls, host):
    assert handshake(tls, client_context(tls.ca), host) == b"hello"


@pytest.mark.parametrize("host", ["example.org", "127.0.0.2"])
def test_it_is_not_good_for_another_host(tls, host):
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        handshake(tls, client_context(tls.ca), host)


def test_it_is_not_good_for_who_knows_another_authority(tls, tmp_path):
    stranger = make_tls(tmp_path, ["localhost"])

    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls, client_context(stranger.ca), "localhost")


def test_the_authoritys_key_is_not_kept(tls):
    """Nobody can sign another certificate with what lies on the disk."""
    assert sorted(os.listdir(Path(tls.ca).parent)) == ["ca.pem", "cert.pem", "key.pem"]
    with pytest.raises(ssl.SSLError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.ca, tls.key)


@pytest.mark.usefixtures("_open_umask")
def test_the_certificates_files_are_for_their_owner_only(tmp_path):
    made = make_tls(tmp_path / "home", ["localhost"])

    assert mode(made.key) == 0o600
    assert mode(Path(made.key).parent) == 0o700


def test_a_certificate_is_made_once(tmp_path):
    first = make_tls(tmp_path, ["localhost"])
    before = contents(first)

    second = make_tls(tmp_path, ["localhost"])

    assert second == first
    assert contents(second) == before


def test_a_certificate_that_is_not_complete_is_made_anew(tmp_path):
    first = make_tls(tmp_path, ["localhost"])
    os.remove(first.cert)

    second = make_tls(tmp_path, ["localhost"])

    assert handshake(second, client_context(second.ca), "localhost") == b"hello"


def test_without_an_authority_there_is_no_tls():
    assert client_context(None) is client_context("") is None


def test_an_authority_that_cannot_be_read_is_refused(tmp_path):
    nothing = tmp_path / "ca.pem"
    with pytest.raises(BadInput, match=r"the certificate authority .*ca\.pem cannot be read: .*No such file"):
        client_context(str(nothing))

    nothing.write_text("no certificate")
    with pytest.raises(BadInput, match=r"the certificate authority .*ca\.pem cannot be read"):
        client_context(str(nothing))
