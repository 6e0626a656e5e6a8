"""What a dashboard is told when it is started."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from rxjobs.errors import InvalidOption

TOKEN_LEAST = 16
TRACE = "{trace_id}"


class Role(StrEnum):
    """What somebody may do: look, or also change things."""

    VIEW = "view"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """Where a dashboard listens, who gets in, and what is shown. Raises InvalidOption for what would be open to all, or is none."""

    host: str = "127.0.0.1"
    port: int = 8800
    token: str | None = None
    """Whoever has it may look and change things."""
    view_token: str | None = None
    """Whoever has it may look."""
    is_read_only: bool = False
    shows_args: bool = False
    origin: str | None = None
    """The address that browsers have for it where something stands in front, such as https://jobs.example.org."""
    trace_url: str | None = None

    def __post_init__(self) -> None:
        for name, token in (("RXJOBS_WEB_TOKEN", self.token), ("RXJOBS_WEB_VIEW_TOKEN", self.view_token)):
            if token is not None and (len(token) < TOKEN_LEAST or not token.isascii() or not token.isprintable()):
                raise InvalidOption(
                    f"{name} has {len(token)} characters, and is at least {TOKEN_LEAST} of printable ASCII: "
                    'python -c "import secrets; print(secrets.token_urlsafe())" makes one'
                )
        if self.token is not None and self.token == self.view_token:
            raise InvalidOption("RXJOBS_WEB_TOKEN and RXJOBS_WEB_VIEW_TOKEN are the same: whoever may look could change things")
        if not (self.is_loopback and self.origin is None) and not self.needs_token:
            raise InvalidOption(
                f"others than this machine may reach {self.origin or self.host}, so that a token is needed: set RXJOBS_WEB_TOKEN, "
                "or leave --host at 127.0.0.1"
            )
        if self.origin is not None and not _is_origin(self.origin):
            raise InvalidOption(f"--origin is a scheme and a host, such as https://jobs.example.org, not {self.origin!r:.200}")
        if self.trace_url is not None and (TRACE not in self.trace_url or not re.match(r"https?://[^/]", self.trace_url)):
            raise InvalidOption(f"--trace-url is a URL with {TRACE} in it, not {self.trace_url!r:.200}")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or (_is_address(self.host) and ipaddress.ip_address(self.host).is_loopback)

    @property
    def needs_token(self) -> bool:
        """Whether nobody gets in without one."""
        return self.token is not None or self.view_token is not None

    @property
    def everybody(self) -> Role | None:
        """What whoever comes may do; None where a token is needed."""
        return None if self.needs_token else self.most

    @property
    def most(self) -> Role:
        """What anybody may do at most."""
        return Role.VIEW if self.is_read_only else Role.OPERATE

    def is_known_host(self, host: str) -> bool:
        """Whether a request's Host is one of ours. Of names only localhost is: any other may have been made to lead here."""
        if self.origin is not None and host == urlsplit(self.origin).netloc:
            return True
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost":
            return True
        if not _is_address(name):
            return False
        return ipaddress.ip_address(name).is_loopback or not self.is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and text == f"{parts.scheme}://{parts.netloc}"
