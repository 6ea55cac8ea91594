"""Makes certificates for dask's TLS, and the settings that name them."""

import datetime
from dataclasses import dataclass
from pathlib import Path

PREFIX = "DASK_DISTRIBUTED__COMM__"


@dataclass(frozen=True)
class Pair:
    """A certificate that is its own authority, and its key."""

    certificate: Path
    key: Path

    def settings(self, authority: Path | None = None) -> dict[str, str]:
        """Return dask's TLS settings for all roles, as environment variables."""
        found = {f"{PREFIX}TLS__CA_FILE": str(authority or self.certificate)}
        for role in ("CLIENT", "SCHEDULER", "WORKER"):
            found[f"{PREFIX}TLS__{role}__CERT"] = str(self.certificate)
            found[f"{PREFIX}TLS__{role}__KEY"] = str(self.key)
        return found


def make_pair(directory: Path) -> Pair:
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    directory.mkdir(mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, directory.name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    pair = Pair(directory / "cert.pem", directory / "key.pem")
    pair.certificate.write_bytes(certificate.public_bytes(pem))
    pair.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    pair.key.chmod(0o600)
    return pair
