"""What an examination finds."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Health(StrEnum):
    """How it stands with what was looked at."""

    OK = "ok"
    WARNING = "warning"
    """It works, and not as well as it could, or not for ever."""
    PROBLEM = "problem"
    """Jobs stand still, or may be lost."""


class Finding(msgspec.Struct, frozen=True):
    """What one check found, and what to do where it isn't well."""

    check: str
    state: Health
    found: str
    advice: str | None = None


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Health.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    """It works, for now."""
    return Finding(check, Health.WARNING, found, advice)


def problem(check: str, found: str, advice: str) -> Finding:
    """It does not work, or loses what it is given."""
    return Finding(check, Health.PROBLEM, found, advice)


def worst(findings: list[Finding]) -> Health:
    """The state of the whole."""
    return max((finding.state for finding in findings), key=list(Health).index, default=Health.OK)
