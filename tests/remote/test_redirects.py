"""Test where redirects lead: each hop is checked, and credentials stay with the server that they
are for."""

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.driver import ENTRY, Host, entry_bytes, entry_file
from support.servers import Hostile, hostile_server

from lazyck.remote import Remote

BODY = b"the code" * 5000
Tls = tuple[ssl.SSLContext, Path]


USES = {"digital_signature": True, "key_cert_sign": True, "crl_sign": True}
UNUSED = (
    "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only",
)  # fmt: skip


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """Make a server's certificate for this machine, and the file that makes a client trust it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    directory = tmp_path_factory.mktemp("tls")
    now = datetime.datetime.now(datetime.timezone.utc)

    def certify(name: str, by: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None) -> tuple[bytes, bytes, x509.Name]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        issuer, signer = by or (subject, key)
        builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
        builder = builder.add_extension(x509.BasicConstraints(by is None, None), critical=True)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        if by:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if by is None:
            # Without this extension, Python 3.13's strict checks refuse an authority.
            builder = builder.add_extension(x509.KeyUsage(**dict.fromkeys(UNUSED, False), **USES), critical=True)
            authority.append((subject, key))
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return builder.sign(signer, hashes.SHA256()).public_bytes(pem), private, subject

    authority: list[tuple[x509.Name, ec.EllipticCurvePrivateKey]] = []
    (directory / "ca.pem").write_bytes(certify("tests of lazyck", None)[0])
    certificate, private, _ = certify("localhost", authority[0])
    (directory / "server.pem").write_bytes(private + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    return context, directory / "ca.pem"


@pytest.fixture
def secure(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hostile]:
    """Run a server that has a certificate, called localhost."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tls[1]))
    with hostile_server(tls[0], "localhost") as server:
        yield server


@pytest.fixture
def other(tls: Tls) -> Iterator[Hostile]:
    """Run another server that has a certificate, called 127.0.0.1."""
    with hostile_server(tls[0]) as server:
        yield server


def seed(server: Hostile, tmp_path: Path) -> None:
    """Put an entry on the server."""
    remote = Remote.from_environment({"LAZYCK_REMOTE": f"{server.url}|trusted"})
    assert remote and remote.push(ENTRY, entry_file(tmp_path / "seed", body=BODY))
    server.asked.clear()
    server.authorizations.clear()


def redirect(server: Hostile, to: str) -> None:
    """Make the server redirect there."""
    server.mood, server.elsewhere = "elsewhere", to


def test_an_https_server_is_used_and_one_with_a_strangers_certificate_is_not(
    secure: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(secure, tmp_path)
    host = Host(tmp_path / "1", f"{secure.url}|trusted")
    runtime = host.miss()
    assert runtime.verdict() == "hit"
    assert host.keep(runtime) == entry_bytes(body=BODY)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    runtime = host.miss("--wait", "0")
    assert runtime.verdict() == "compile"
    assert "its certificate is not valid here" in runtime.of("skipped")[0]


def test_a_redirect_from_https_to_http_and_on_to_https_is_not_followed(
    secure: Hostile, hostile: Hostile, other: Hostile, tmp_path: Path
) -> None:
    seed(other, tmp_path)
    redirect(secure, hostile.url)
    redirect(hostile, other.url)
    runtime = Host(tmp_path / "1", f"{secure.url}|trusted").miss("--only-fetch")
    assert runtime.verdict() == "miss"
    assert "redirects away from https" in runtime.of("skipped")[0]
    assert secure.asked and not hostile.asked and not other.asked


def test_a_redirect_that_left_http_for_https_does_not_come_back(
    hostile: Hostile, secure: Hostile, other: Hostile, tmp_path: Path
) -> None:
    seed(hostile, tmp_path)
    hostile.mood, hostile.only, hostile.elsewhere = "elsewhere", "first/", secure.url
    redirect(secure, hostile.url)
    runtime = Host(tmp_path / "1", f"{hostile.url}/first|trusted").miss("--only-fetch")
    assert runtime.verdict() == "miss"
    assert "redirects away from https" in runtime.of("skipped")[0]
    assert (len(hostile.asked), len(secure.asked)) == (1, 1)


@pytest.mark.parametrize("what", ["password", "token", "netrc"])
def test_credentials_go_to_no_other_server_and_no_other_port(
    what: str, secure: Hostile, hostile: Hostile, other: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(other, tmp_path)
    redirect(hostile, other.url)
    passwords = "machine localhost login user password s3cret\nmachine 127.0.0.1 login user password s3cret\n"
    for name, text in (("netrc", passwords), ("token", "t0ken")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    remote = hostile.url
    if what == "password":
        remote = remote.replace("http://", "http://user:s3cret@")
    if what == "token":
        remote += f"|token-file={tmp_path}/token"
    if what == "netrc":
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    runtime = Host(tmp_path / "1", f"{remote}|trusted").miss()
    assert runtime.verdict() == "hit"
    assert all(hostile.authorizations)
    assert set(other.authorizations) == {""}
    # Credentials must not go to the name over TLS either: another port might be anybody's.
    redirect(hostile, secure.url)
    redirect(secure, other.url)
    runtime = Host(tmp_path / "2", f"{remote}|trusted").miss()
    assert runtime.verdict() == "hit"
    assert {*secure.authorizations, *other.authorizations} == {""}


def test_credentials_do_not_come_back_with_a_redirect(secure: Hostile, other: Hostile, tmp_path: Path) -> None:
    """The other server would choose what is requested in the owner's name."""
    seed(secure, tmp_path)
    secure.mood, secure.only, secure.elsewhere = "elsewhere", "/first/", other.url
    other.mood, other.elsewhere = "back", secure.url
    url = secure.url.replace("https://", "https://user:s3cret@")
    runtime = Host(tmp_path / "1", f"{url}/first|trusted").miss("--only-fetch")
    assert runtime.verdict() == "hit"
    asked = zip(secure.asked, secure.authorizations, strict=True)
    assert {(path.startswith("/first/"), bool(sent)) for (_, path), sent in asked} == {(True, True), (False, False)}
    assert set(other.authorizations) == {""}


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://[::1", "http://h:port/", "https:///x"]
)
def test_a_redirect_to_what_is_no_web_server_is_not_followed(to: str, hostile: Hostile, tmp_path: Path) -> None:
    redirect(hostile, to)
    runtime = Host(tmp_path / "1", f"{hostile.url}|trusted").miss("--only-fetch")
    assert runtime.verdict() == "miss"
    assert "redirects to a" in runtime.of("skipped")[0]
    assert len(hostile.asked) == 1


@pytest.mark.parametrize(("hops", "verdict"), [(4, "hit"), (5, "miss")])
def test_redirects_are_counted(hops: int, verdict: str, hostile: Hostile, tmp_path: Path) -> None:
    seed(hostile, tmp_path)
    hostile.mood, hostile.only, hostile.elsewhere = "hop", "/hop", str(hops)
    hostile.objects |= {f"/{hops}{path}": data for path, data in list(hostile.objects.items())}
    runtime = Host(tmp_path / "1", f"{hostile.url}/hop0|trusted").miss("--only-fetch")
    assert runtime.verdict() == verdict
    assert len(hostile.asked) == (2 * 5 if verdict == "hit" else 5)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_what_writes_follows_no_redirect(method: str, secure: Hostile, other: Hostile, tmp_path: Path) -> None:
    redirect(secure, other.url)
    secure.methods = method
    host = Host(tmp_path / "1", f"{secure.url}|trusted")
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    host.make(runtime)
    assert method in {asked for asked, _ in secure.asked}
    assert not other.asked
