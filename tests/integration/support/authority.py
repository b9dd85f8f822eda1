"""A CA for tests, made by openssl, with certificates that are good, expired or revoked."""

import ssl
import subprocess
import time
from pathlib import Path

from beanpoled.cli.certs import make_ca, make_certificate

_CONFIGURATION = """
[ca]
default_ca = here
[here]
database = {place}/index
crlnumber = {place}/crlnumber
default_md = sha256
new_certs_dir = {place}
rand_serial = yes
unique_subject = no
policy = any
[any]
commonName = supplied
"""
_OF_CA = "basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign\n"


class Authority:
    """One CA in a folder."""

    def __init__(self, place: Path, name: str = "", above: "Authority | None" = None) -> None:
        """Make it in a new folder.

        Args:
            place: the folder.
            name: by default the one of all development CAs.
            above: the CA that signs its certificate, and can revoke it by the name; by default it
                signs its own.
        """
        place.mkdir()
        self.place = place
        if above is not None:
            above.sign(name, place)
        elif name:
            line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
            line += ["ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-days", "30"]
            line += ["-keyout", str(place / "ca.key"), "-out", str(place / "ca.pem")]
            subprocess.run(line, check=True, capture_output=True)
        make_ca(place, "30")
        self.ca = str(place / "ca.pem")

    def sign(self, name: str, place: Path) -> None:
        """Make the certificate of an intermediate CA, with its key, in another folder."""
        request, extensions = str(place / "request"), place / "extensions"
        line = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        line += ["-nodes", "-subj", f"/CN={name}", "-keyout", str(place / "ca.key")]
        subprocess.run([*line, "-out", request], check=True, capture_output=True)
        extensions.write_text(_OF_CA)
        line = [*self._ca(), "-batch", "-notext", "-in", request, "-out", str(place / "ca.pem")]
        line += ["-days", "30", "-extfile", str(extensions)]
        subprocess.run(line, check=True, capture_output=True)
        (self.place / f"{name}.pem").write_bytes((place / "ca.pem").read_bytes())

    def chain(self, name: str) -> tuple[str, str]:
        """Make a certificate that is shown with this CA's; returns its file and its key's."""
        certificate, key = self.make(name)
        with open(certificate, "a", encoding="ascii") as file:
            file.write(Path(self.ca).read_text())
        return certificate, key

    def make(self, name: str, days: str = "30") -> tuple[str, str]:
        """Make a certificate for a name and this machine; returns its file and its key's."""
        make_certificate(self.place, name, [name, "localhost", "127.0.0.1"], days)
        return str(self.place / f"{name}.pem"), str(self.place / f"{name}.key")

    def date(self, name: str, begin_s: float, end_s: float) -> str:
        """Make a certificate, or the CA's as `ca`, again with other times; returns its file.

        Args:
            name: of a certificate that was made; its key and names stay.
            begin_s: from when on it is valid, by the wall clock.
            end_s: until when.
        """
        shown, key = str(self.place / f"{name}.pem"), str(self.place / f"{name}.key")
        request, extensions = str(self.place / "request"), self.place / "extensions"
        line = ["openssl", "x509", "-in", shown, "-noout", "-subject", "-nameopt", "RFC2253"]
        told = subprocess.run(line, check=True, capture_output=True, text=True).stdout
        subject = "/" + told.strip().removeprefix("subject=")
        line = ["openssl", "req", "-new", "-key", key, "-subj", subject, "-out", request]
        subprocess.run(line, check=True, capture_output=True)
        is_ca = shown == self.ca
        names = f"subjectAltName=DNS:{name},DNS:localhost,IP:127.0.0.1\n"
        extensions.write_text(_OF_CA if is_ca else names)
        line = [*self._ca(), "-batch", "-notext", "-in", request, "-out", shown]
        line += ["-extfile", str(extensions), *(["-selfsign"] if is_ca else [])]
        for option, at_s in (("-startdate", begin_s), ("-enddate", end_s)):
            line += [option, _stamp(at_s)]
        subprocess.run(line, check=True, capture_output=True)
        return shown

    def revoke(self, *names: str, until: str = "", since: str = "20200101000000Z") -> str:
        """Revoke certificates; returns the file of a new list of all revoked ones.

        Args:
            names: of the certificates.
            until: the end of the list, as 20210131000000Z; by default in 30 days.
            since: its begin.
        """
        base = self._ca()
        for name in names:
            line = [*base, "-revoke", str(self.place / f"{name}.pem")]
            subprocess.run(line, check=True, capture_output=True)
        crl = self.place / "crl.pem"
        until = until or _stamp(time.time() + 30 * 86_400)
        line = [*base, "-gencrl", "-out", str(crl)]
        line += ["-crl_lastupdate", since, "-crl_nextupdate", until]
        subprocess.run(line, check=True, capture_output=True)
        return str(crl)

    def _ca(self) -> list[str]:
        """Return the begin of a command that signs, with its files."""
        settings = self.place / "openssl.cnf"
        settings.write_text(_CONFIGURATION.format(place=self.place))
        for file, first in (("index", ""), ("crlnumber", "01\n")):
            if not (self.place / file).exists():
                (self.place / file).write_text(first)
        base = ["openssl", "ca", "-config", str(settings), "-cert", self.ca]
        return [*base, "-keyfile", str(self.place / "ca.key")]

    def client(self, shown: tuple[str, str] | None) -> ssl.SSLContext:
        """Return the TLS context of a client, with its certificate or without one."""
        context = ssl.create_default_context(cafile=self.ca)
        if shown is not None:
            context.load_cert_chain(*shown)
        return context


def _stamp(at_s: float) -> str:
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(at_s))


def begun(place: Path, name: str = "") -> tuple[Authority, str, str]:
    """Make a CA, and a certificate with its key, that are valid from yesterday on, for 30 days."""
    authority = Authority(place, name)
    certificate, key = authority.make("n0")
    for one in ("ca", "n0"):
        authority.date(one, time.time() - 86_400, time.time() + 30 * 86_400)
    return authority, certificate, key
