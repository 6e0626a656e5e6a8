"""`rxjobs web`"""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rxjobs.cli.asking import answer
from rxjobs.cli.logs import log_to_stderr
from rxjobs.cli.printing import print_json, print_lines
from rxjobs.cli.target import HERE, Target
from rxjobs.errors import InvalidOption

TOKEN, VIEW_TOKEN = "RXJOBS_WEB_TOKEN", "RXJOBS_WEB_VIEW_TOKEN"


def web(
    *,
    host: Annotated[str, Parameter(help="Where to listen. Others than this machine need a token.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="At which port; 0 takes one that is free.", validator=Number(gte=0, lte=65535))] = 8800,
    read_only: Annotated[bool, Parameter(help="Nobody changes anything.", show_default=False)] = False,
    show_args: Annotated[bool, Parameter(help="Show arguments, meta and results; secrets never.", show_default=False)] = False,
    origin: Annotated[str | None, Parameter(help="The address that browsers use, where a proxy stands in front.")] = None,
    trace_url: Annotated[str | None, Parameter(help="Where traces are shown: a URL with {trace_id} in it.")] = None,
    target: Target = HERE,
) -> None:
    """Serve pages that show pipelines, queues, jobs, dead letters, cron and breakers, and let them be steered, until Ctrl-C.

    It listens on this machine only. For any other, RXJOBS_WEB_TOKEN is what whoever comes must know, RXJOBS_WEB_VIEW_TOKEN what
    whoever may only look must; they are no options, since others could read those in the list of processes. TLS is for a proxy.

    Example: rxjobs web --port 8800 --trace-url "http://localhost:16686/trace/{trace_id}"
    """
    try:
        from rxjobs.web.options import WebOptions
        from rxjobs.web.serve import serve
    except ImportError as error:
        raise InvalidOption(f"the pages need a package that is not there ({error.name}): pip install 'rxjobs[web]'") from error
    options = WebOptions(
        host=host, port=port, token=os.environ.get(TOKEN), view_token=os.environ.get(VIEW_TOKEN), is_read_only=read_only,
        shows_args=show_args, origin=origin, trace_url=trace_url,
    )  # fmt: skip
    log_to_stderr("info", as_json=target.json)

    def ready(address: str) -> None:
        if target.json:
            print_json({"url": origin or address, "listening": address})
        else:
            print_lines(f"rxjobs web: {origin or address}" + (f", listening at {address}" if origin else ""))
        print(end="", flush=True)

    answer(serve(target.app(), options, ready))
