"""Which blocks and lines of the pages no test runs, each with its reason; and which pages another test runs."""

from __future__ import annotations

RUN_BY = {
    "docs/embedding.md": "tests/journeys/test_embedding.py",
    "docs/testing.md": "tests/testing/test_plugin.py",
    "docs/scale.md": "tests/executors/test_ray.py",
}
"""Pages whose blocks are run by a test of their own, which names the page."""

LANGUAGES = {
    "elixir": "no Elixir where this is built: the text is Oban's side of a comparison",
}
"""Languages that nothing here can run."""

LINES = {
    "make": "its targets run the tests, take long or change files; that there is such a target is looked up",
    ".ci/run": "it runs this",
    "rxjobs web": "tests/cli/test_web.py starts it",
    "rxjobs bench": "takes minutes; tests/bench_command runs small ones",
    "python -m tests.peers": "makes environments of the peers, and takes minutes; tests/bench_command/test_peers.py runs our side",
    "docker compose up": "no container engine where this is built; tests/observability holds its files to their schemas",
    "pip install": "the environment of the tests stays as it is; that the extra is there is looked up",
    "python -m venv": "the environment of the tests stays as it is",
    "source .venv/bin/activate": "the environment of the tests stays as it is",
}
"""How lines of bash begin that are checked and not run: that a make target, an extra, an option is there is asked all the same."""

PARSED = {
    "--processes": "tests/cli/test_processes.py runs it",
    "--reload": "tests/cli/test_reload.py runs it",
    "--metrics-port": "tests/telemetry/test_run.py runs it",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "tests/telemetry/test_run.py runs it",
}
"""What a `rxjobs run` has that is parsed by the command itself, and started elsewhere."""
