"""Access to a fleet: passwords generated once per fleet, files that only their owner can read, TLS.

There are four users. ``client`` publishes and subscribes. ``fleet`` (keeper, agents, the command line) may do
everything in the application account. ``system`` queries the servers. ``route`` connects servers to each other.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import secrets
import ssl
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from trimtab.errors import BadInput

FLEET_FILE: Final = "fleet.json"  # all secrets: for the command line, and for brokers that join
REPLICA_FILE: Final = "replica.json"  # in a broker's folder: the registry as its agent has it
CLIENT_FILE: Final = "client.json"  # addresses and password for applications


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files; the same certificate serves every listener of a machine."""

    ca: str
    cert: str
    key: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet's secrets, and the addresses of its hub."""

    hub: str = ""  # nats://host:port
    hub_leaf: str = ""  # host:port for brokers
    client: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    fleet: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    system: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    route: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    tls: Tls | None = None

    def save(self, home: Path) -> Path:
        path = home / FLEET_FILE
        write_secret(path, asdict(self))
        return path

    @classmethod
    def load(cls, path: Path) -> Fleet:
        content = read_secret(path, "trimtab up or trimtab hub writes it")
        tls = content.pop("tls", None)
        try:
            secrets_of = {
                name: str(content.pop(name)) for name in ("hub", "hub_leaf", "client", "fleet", "system", "route")
            }
            return cls(**secrets_of, **content, tls=Tls(**tls) if tls else None)
        except (TypeError, KeyError):
            raise BadInput(f"{path} is not a fleet file: trimtab up or trimtab hub writes one") from None


def write_secret(path: Path, content: dict[str, Any]) -> None:
    """Write JSON atomically to a file that only its owner can ever read."""
    write_private(path, json.dumps(content, indent=2).encode())


def write_private(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write bytes atomically to a file that only its owner can ever read; with ``sync``, they survive a power loss."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
        if sync:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_secret(path: Path, hint: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"there is no {path}: {hint}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadInput(f"{path} is not JSON: {hint}") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path} is not a JSON object: {hint}")
    return content


def client_context(ca: str | None) -> ssl.SSLContext | None:
    """The TLS context with which a client checks a server's certificate; None without TLS."""
    if not ca:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise BadInput(f"the certificate authority {ca} cannot be read: {error}") from None


def make_tls(home: Path, hosts: list[str]) -> Tls:
    """The fleet's own authority and a certificate for these hosts, in ``home/tls``; generated unless still valid."""
    from cryptography import x509

    folder = home.resolve() / "tls"
    tls = Tls(*(str(folder / f"{name}.pem") for name in ("ca", "cert", "key")))
    if all(Path(path).exists() for path in (tls.ca, tls.cert, tls.key)):
        old = x509.load_pem_x509_certificate(Path(tls.cert).read_bytes())
        names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
        if old.not_valid_after_utc > soon and all(_alternative(x509, host) in names for host in hosts):
            return tls
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.datetime.now(datetime.UTC)
    pem = serialization.Encoding.PEM

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=825))
        )

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = named("trimtab fleet")
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    authority = (
        builder(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # servers call each other
    certificate = (
        builder(named("trimtab"), issuer, key.public_key())
        .add_extension(x509.SubjectAlternativeName([_alternative(x509, host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    for path, content in (
        (tls.ca, authority.public_bytes(pem)),
        (tls.cert, certificate.public_bytes(pem)),
        (tls.key, private),
    ):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
    return tls


def _alternative(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
