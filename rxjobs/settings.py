"""What tests and operators turn: arguments win over RXJOBS_* variables, those over [tool.rxjobs] in pyproject.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rxjobs.errors import InvalidOption

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
KINDS = {bool: "boolean (true or false)", float: "number", int: "whole number", str: "text"}
TEXTS = "dsn", "listen_dsn"
UNSET = {**dict.fromkeys(TEXTS, str), "ageing_seconds": float}
"""What settings are whose default is None."""
TRUE, FALSE = ("true", "1", "on", "yes"), ("false", "0", "off", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one app. Times are seconds."""

    dsn: str | None = None
    """A PostgreSQL DSN, `embedded`, `embedded:///folder`, or None: the embedded server."""
    schema: str = "rxjobs"
    node: str = ""
    """A label; a node's identity is a fresh UUID per start."""
    lease_seconds: float = 30.0
    heartbeat_seconds: float = 10.0
    rescue_seconds: float = 5.0
    """How often dead nodes are looked for."""
    leader_seconds: float = 15.0
    """How long a leader that fell silent is waited for; at most half a lease."""
    poll_seconds: float = 1.0
    """How long a lost wake-up can cost."""
    ageing_seconds: float | None = None
    """How long a ready job waits until it rises by one step of priority, and again until the next; None is never."""
    shutdown_grace: float = 25.0
    max_memory: int = 0
    """Bytes of memory at which this process drains and ends for a fresh start; 0 is no limit."""
    max_args_bytes: int = 1024 * 1024
    keep: float = 86400.0
    """How long finished rows are kept."""
    keep_discarded: float = 7 * 86400.0
    """How long dead letters are kept; by default at least as long as the others."""
    notify: bool = True
    listen_dsn: str | None = None
    """Another DSN of the same database, to listen on for notifications: the server itself, where `dsn` leads through a pooler."""
    migrate: bool = False
    max_restarts: int = 5
    restart_window: float = 60.0

    def __post_init__(self) -> None:
        if self.dsn == "":
            raise InvalidOption(
                "dsn is empty, as a shell makes it of a variable that is not set: give a DSN, or leave it out for RXJOBS_DSN or "
                "else the embedded server"
            )
        if not self.node.isprintable() or len(self.node) > 128:
            raise InvalidOption(f"node is a label of at most 128 printable characters, not {self.node!r:.100}")
        if not SCHEMA.fullmatch(self.schema):
            raise InvalidOption(f"schema is a lower-case PostgreSQL name of at most 48 characters, not {self.schema!r:.100}")
        for name in (
            "lease_seconds",
            "heartbeat_seconds",
            "rescue_seconds",
            "leader_seconds",
            "poll_seconds",
            "restart_window",
            "ageing_seconds",
        ):
            if getattr(self, name) is not None and not 0 < getattr(self, name) < 10**9:
                raise InvalidOption(f"{name} is a number of seconds above 0, not {getattr(self, name)}")
        for name in ("shutdown_grace", "keep", "keep_discarded", "max_args_bytes", "max_restarts", "max_memory"):
            if not getattr(self, name) >= 0:
                raise InvalidOption(f"{name} is at least 0, not {getattr(self, name)}")
        if self.heartbeat_seconds > self.lease_seconds / 3:
            raise InvalidOption(
                f"heartbeat_seconds={self.heartbeat_seconds} is more than a third of lease_seconds={self.lease_seconds}: "
                "one lost heartbeat would cost the lease; lower the one or raise the other"
            )


def load(arguments: Mapping[str, Any], environ: Mapping[str, str] = os.environ, folder: Path | None = None) -> Settings:
    """Put the settings together; raises InvalidOption that names the setting and where it was set.

    An argument of None sets nothing, as an empty variable does.
    """
    known = {field.name: field for field in fields(Settings)}
    for name in arguments:
        if name not in known:
            raise InvalidOption(f"App has no setting {name!r}; there are {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, value in _pyproject(folder).items():
        if name not in known:
            raise InvalidOption(f"[tool.rxjobs] in pyproject.toml has no setting {name!r}; there are {', '.join(known)}")
        values[name] = _convert(name, value, "pyproject.toml")
    for name in known:
        variable = f"RXJOBS_{name.upper()}"
        if environ.get(variable, "") != "":
            values[name] = _convert(name, environ[variable], variable)
    values |= {name: _convert(name, value, "App(...)") for name, value in arguments.items() if value is not None}
    if "lease_seconds" in values and "heartbeat_seconds" not in values:
        # who shortens the lease alone means the heartbeat to follow
        values["heartbeat_seconds"] = min(Settings().heartbeat_seconds, values["lease_seconds"] / 3)
    if "keep_discarded" not in values:
        values["keep_discarded"] = max(Settings().keep_discarded, values.get("keep", 0.0))
    return Settings(**values)


def _pyproject(folder: Path | None) -> dict[str, Any]:
    import tomllib  # takes longer to import than most of rxjobs

    try:
        path = (folder or Path.cwd()) / "pyproject.toml"
        table = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("rxjobs", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidOption(f"pyproject.toml could not be read for [tool.rxjobs]: {error}") from error
    return dict(table)


def _convert(name: str, value: Any, where: str) -> Any:
    kind = UNSET.get(name) or type(getattr(Settings(), name))
    convert: Callable[[Any], Any] = _boolean if kind is bool else kind
    is_broken = kind is int and isinstance(value, float) and not value.is_integer()  # else it would be cut off
    if is_broken or (kind is not bool and isinstance(value, bool)) or (kind is str and not isinstance(value, str)):
        raise InvalidOption(f"{name}={value!r} in {where} is no {KINDS[kind]}")
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise InvalidOption(f"{name}={value!r} in {where} is no {KINDS[kind]}") from None


def _boolean(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise ValueError(value)
