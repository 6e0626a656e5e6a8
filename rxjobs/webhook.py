"""Post a dead letter to a URL."""

from __future__ import annotations

import urllib.error
import urllib.request
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.store.encoding import to_json

SCHEMES = ("http", "https")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What is told of a job goes where it was said to go, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhook:
    """A URL that dead letters are posted to as JSON, with all but their arguments and meta: those may be nobody else's business."""

    def __init__(self, url: str, timeout: float) -> None:
        try:
            parts = urlsplit(url)
            is_right = parts.scheme in SCHEMES and bool(parts.hostname) and url.isprintable() and url.isascii() and " " not in url
            _ = parts.port
        except (TypeError, ValueError, AttributeError):
            is_right = False
        if not is_right:
            raise InvalidOption(f"webhook is a URL that begins with https:// or http://, not {url!r:.100}")
        self._url = url
        self._host = parts.hostname
        self._timeout = timeout
        self._agent = f"rxjobs/{version('rxjobs')}"
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __repr__(self) -> str:
        return f"the webhook at {self._host}"  # its path may be a secret

    def post(self, job: Job) -> None:
        """Post a dead letter; blocks. Raises OSError where it does not arrive, or is answered with anything but success."""
        headers = {"Content-Type": "application/json", "User-Agent": self._agent}
        request = urllib.request.Request(self._url, data=to_json(document(job)), headers=headers, method="POST")  # noqa: S310 - checked
        try:
            with self._opener.open(request, timeout=self._timeout):
                pass
        except urllib.error.HTTPError as error:
            with error:  # it holds the connection
                raise OSError(f"it answered {error.code} {error.reason}") from None


def document(job: Job) -> dict[str, Any]:
    """What is posted of a dead letter."""
    told = {
        "id", "type", "queue", "state", "attempt", "max_attempts", "priority", "inserted_at", "scheduled_at", "attempted_at",
        "finished_at", "tags", "node", "errors", "forensics",
    }  # fmt: skip
    letter = {name: getattr(job, name) for name in job.__struct_fields__ if name in told}
    return {"event": "job.discard", "job": letter, "untold": job.assigns.get("untold", 0)}
