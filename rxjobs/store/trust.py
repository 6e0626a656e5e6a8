"""Whether a server is the one that is meant: what the DSN asks of TLS, and what to do where the server or we refuse it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

VERIFY_FULL = "verify-full"
DEFAULT = "prefer"
"""What asyncpg does unless it is told: TLS where the server offers it, whoever that is."""

WRONG_NAME = frozenset({62, 64})
"""OpenSSL's numbers for a certificate that is for another host, or another address."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Where a DSN leads, and how it makes sure of what it finds there."""

    hosts: tuple[str, ...]
    """Those on other machines."""
    sslmode: str

    @property
    def is_sure(self) -> bool:
        """Whether nobody can stand between, or would be noticed."""
        return not self.hosts or self.sslmode == VERIFY_FULL

    @property
    def doubt(self) -> str:
        """What is to be known where it is not sure."""
        return (
            f"with sslmode={self.sslmode} nobody makes sure that it is {', '.join(self.hosts)} who answers, and whoever stands "
            "between can read and change everything"
        )


def trust_in(dsn: str, environ: Mapping[str, str] = os.environ) -> Trust:
    """Read it from a DSN, and from the PG… variables where that leaves it open."""
    try:
        parts = urlsplit(dsn)
        query = parse_qs(parts.query)
        named = [_host(one) for one in parts.netloc.rpartition("@")[2].split(",")]
    except ValueError:
        return Trust((), DEFAULT)  # it is no DSN, which is told elsewhere
    given = [host for host in named if host] or [one for value in query.get("host", ()) for one in value.split(",")]
    hosts = tuple(host for host in given or environ.get("PGHOST", "").split(",") if not _is_here(host))
    sslmode = query.get("sslmode", [environ.get("PGSSLMODE", "") or DEFAULT])[-1]
    return Trust(hosts, sslmode.replace("_", "-"))


ADVICE = "put sslmode=verify-full and sslrootcert=/path/of/the/ca.crt into the DSN, see docs/connections.md"
"""For whoever is not sure."""


def advice_for(error: BaseException) -> str | None:
    """What to do about a connection that failed for TLS; None where that is not why."""
    match error:
        case ssl.SSLCertVerificationError(verify_code=code) if code in WRONG_NAME:
            return "The server's certificate is for another name: connect by the name that is in it, or have one made for this."
        case ssl.SSLCertVerificationError():
            return "sslrootcert is to be the file of the CA that signed the server's certificate. If it is, this is another server."
        case ssl.SSLError():
            return "Server and client do not agree on TLS: if it asks for a client certificate, one it knows is to be in sslcert."
        case ConnectionError() if "rejected SSL upgrade" in str(error):
            return "The server has no TLS, or somebody in between says so: turn on ssl in its postgresql.conf."
        case asyncpg.InvalidAuthorizationSpecificationError() if "client certificate" in str(error):
            return "Name its files in the DSN: sslcert=/path/of/the/client.crt and sslkey=/path/of/the/client.key."
        case asyncpg.ClientConfigurationError() if "root certificate" in str(error):
            return "Name the file of the CA in the DSN: sslrootcert=/path/of/the/ca.crt"
        case _:
            return None


def _host(text: str) -> str:
    bracketed, _, rest = text.partition("]")
    return unquote(bracketed.removeprefix("[") if rest or text.endswith("]") else text.partition(":")[0])


def _is_here(host: str) -> bool:
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
