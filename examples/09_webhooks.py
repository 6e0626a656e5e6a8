"""Call a webhook for each job. While the other side is down a breaker keeps jobs in their queue, and costs them no attempt.

The service here answers 503 for a while. After three failures in a row nothing is sent to it for a second; then one job
tries, and when that goes well all go on.

python examples/09_webhooks.py
"""

import asyncio
import json
import logging
import sys
import threading
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from reactivex import operators as ops

import rxjobs as rj

app = rj.App()
received: list[str] = []


class Service(BaseHTTPRequestHandler):
    """Somebody's service, which fails at first."""

    calls = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Service.calls += 1
        is_up = Service.calls > 4
        if is_up:
            received.append(f"{body['event']} {body['n']} as {self.headers['Idempotency-Key']}")
        self.send_response(204 if is_up else 503)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """The service is silent."""


BREAKER = rj.Breaker(fail_max=3, reset_timeout=1)


@app.job(name="webhook.call", queue="webhooks", timeout=5, backoff=lambda attempt, error: 0.1, breaker=BREAKER)
def call(host: str, path: str, body: dict[str, object]) -> None:
    """A plain function, which runs in a thread. What it raises is a failed attempt, and counts for the breaker."""
    # the key is the job's own: the other side can tell a call that is repeated from another one
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(rj.current_job().id)}
    with closing(HTTPConnection(host, timeout=4)) as connection:
        connection.request("POST", path, json.dumps(body), headers)
        status = connection.getresponse().status
    if status >= 300:
        raise ConnectionError(f"{host} answered {status}")


async def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="%(message)s")  # the breaker says what it does
    service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{service.server_port}"
    async with app.running(app.source("webhooks", max_demand=5).pipe(rj.execute(concurrency=1), rj.ack())):
        delivered = app.events.pipe(ops.filter(lambda event: event.name == "job.stop" and isinstance(event.outcome, rj.Complete)))
        done = delivered.pipe(ops.take(6), ops.to_future())
        await app.enqueue_many([call.new(host, "/hook", {"event": "paid", "n": n}) for n in range(6)])
        await done
    print("delivered:", len(received), "each once:", len(set(received)) == 6)
    service.shutdown()
    service.server_close()


if __name__ == "__main__":
    asyncio.run(main())
