"""A Django project with rxjobs in it: real `manage.py` commands, on the project's own database."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import msgspec
import pytest
from psycopg.conninfo import conninfo_to_dict

ROOT = Path(__file__).parents[2]
TITLED = re.compile(r'```python title="([^"]+)"\n(.*?)```', re.DOTALL)

FILES = {
    "manage.py": """
import os, sys
from django.core.management import execute_from_command_line
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project")
if __name__ == "__main__":
    execute_from_command_line(sys.argv)
""",
    "project.py": """
import json, os
DATABASES = {"default": json.loads(os.environ["PROJECT_DATABASE"])}
INSTALLED_APPS = ["rxjobs.contrib.django", "shop"]
RXJOBS = {"poll_seconds": 0.2, "threads": 8}
USE_TZ = True
SECRET_KEY = "of a test"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
""",
    "shop/__init__.py": "",
    "shop/models.py": """
from django.db import models

class Order(models.Model):
    note = models.TextField(default="")
""",
    "shop/migrations/__init__.py": "",
    "shop/migrations/0001_initial.py": """
from django.db import migrations, models

class Migration(migrations.Migration):
    fields = [("id", models.BigAutoField(primary_key=True)), ("note", models.TextField(default=""))]
    operations = [migrations.CreateModel("Order", fields)]
""",
    "shop/jobs.py": """
import os, time
from shop.models import Order
from rxjobs import in_processes
from rxjobs.contrib.django import app

@app.job(name="receipt", queue="mail")
def receipt(order_id: int) -> None:
    time.sleep(0.02)
    Order.objects.filter(id=order_id).update(note="sent")

@app.job(name="thanks", queue="mail")
async def thanks(order_id: int) -> None:
    order = await Order.objects.aget(id=order_id)
    order.note = order.note + " with thanks"
    await order.asave()

@app.job(name="count", queue="mail", executor=in_processes(1), record=True)
def count() -> list[int]:
    return [os.getpid(), Order.objects.count()]

@app.job(name="breaks", queue="mail", max_attempts=1)
def breaks() -> None:
    Order.objects.raw("SELECT nonsense FROM nowhere")[0]
""",
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
    "shop/management/commands/order.py": """
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import transaction
from rxjobs.contrib.django import enqueue, enqueue_many
from shop.jobs import breaks, count, receipt
from shop.models import Order

class Undo(Exception): ...

class Command(BaseCommand):
    def handle(self, **options):
        call_command("rxjobs", "migrate")
        try:
            with transaction.atomic():
                order = Order.objects.create(note="undone")
                enqueue(receipt.new(order_id=order.id))
                raise Undo
        except Undo:
            pass
        with transaction.atomic():
            orders = [Order.objects.create() for _ in range(40)]
            enqueue_many(receipt.new(order_id=order.id) for order in orders)
            try:
                with transaction.atomic():
                    enqueue(receipt.new(order_id=0))
                    raise Undo
            except Undo:
                pass
        enqueue(breaks.new())  # outside of a transaction: committed at once
        enqueue_many([count.new(), count.new()])
""",
    "shop/test_schema.py": """
from django.test import TestCase
from rxjobs.contrib.django import app, dsn, enqueue
from shop.jobs import receipt

class Schema(TestCase):
    def test_the_schema_is_there_in_the_tests_database_too(self):
        self.assertEqual(enqueue(receipt.new(order_id=1)).state, "available")
        self.assertIn("/test_", app.settings.dsn)
        self.assertEqual(app.settings.dsn, dsn())
""",
}


def test_a_project_enqueues_in_its_transactions_and_works_on_its_jobs(tmp_path, dsn):
    project = Project(tmp_path, dsn)
    assert "rxjobs: schema rxjobs migrated: " in project.manage("migrate", "-v1")
    assert project.manage("order") == "schema rxjobs is up to date\n"
    waiting = {("receipt", "available"): 40, ("breaks", "available"): 1, ("count", "available"): 2}
    assert jobs(project) == waiting  # of what was undone there is nothing

    with project.working() as worker:
        ended = {("receipt", "completed"): 40, ("breaks", "discarded"): 1, ("count", "completed"): 2}
        wait_until(lambda: jobs(project) == ended, worker)
        assert asyncio.run(ask(dsn, "SELECT note, count(*) FROM shop_order GROUP BY 1")) == [("sent", 40)]
        # in a child process, too, which manage.py has not started Django in
        counted = asyncio.run(ask(dsn, "SELECT DISTINCT result->>0, result->>1 FROM rxjobs.jobs WHERE type = 'count'"))
        assert [(pid == str(worker.pid), orders) for pid, orders in counted] == [(False, "40")]
        # what the ORM has opened in eight threads and the child is closed again
        wait_until(lambda: asyncio.run(ask(dsn, OPEN)) == [], worker)
    said = project.manage("rxjobs", "enqueue", "thanks", "order_id=41", "--json")
    assert msgspec.json.decode(said)["state"] == "available"
    with project.working("--processes", "1") as worker:  # in a process that manage.py has not begun
        wait_until(lambda: jobs(project).get(("thanks", "completed")) == 1, worker)
        assert asyncio.run(ask(dsn, "SELECT note FROM shop_order WHERE id = 41")) == [("sent with thanks",)]
        # and that of coroutines
        wait_until(lambda: asyncio.run(ask(dsn, OPEN)) == [], worker)
    ((error,),) = asyncio.run(ask(dsn, "SELECT errors->0->>'message' FROM rxjobs.jobs WHERE type = 'breaks'"))
    assert 'column "nonsense" does not exist' in error or 'relation "nowhere" does not exist' in error

    refused = project.run("rxjobs", "enqueue", "unknown")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "there is no job type 'unknown' in this app; it has breaks, count, receipt, thanks" in refused.stderr


def test_djangos_own_tests_run_jobs_in_their_transaction(tmp_path, dsn):
    """With the settings, job type, view and test of docs/embedding.md in the place of ours."""
    project = Project(tmp_path, dsn)
    page = dict(TITLED.findall((ROOT / "docs" / "embedding.md").read_text("utf-8")))
    assert set(page) == {"settings.py", "shop/jobs.py", "shop/views.py", "shop/tests.py"}
    ours = FILES["project.py"].replace('"rxjobs.contrib.django", ', "").partition("RXJOBS")
    project.write(page | {"project.py": f"{ours[0]}\n{page.pop('settings.py')}\n{ours[2].partition(chr(10))[2]}"})
    ran = project.run("test", "-v1", "--noinput")
    assert ran.returncode == 0, ran.stderr
    assert "Ran 2 tests" in ran.stderr


OPEN = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'shop'"


class Project:
    """A folder with a manage.py, whose database is that of a DSN; what Django opens there is named `shop`."""

    def __init__(self, folder, dsn):
        found = conninfo_to_dict(dsn)  # of an embedded server the host is a folder
        database = {
            "ENGINE": "django.db.backends.postgresql", "NAME": found["dbname"], "USER": found["user"],
            "PASSWORD": found.get("password", ""), "HOST": found["host"], "PORT": str(found.get("port", "")),
            "OPTIONS": {"application_name": "shop"}, "TEST": {"NAME": f"test_{found['dbname']}"},
        }  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RXJOBS_", "DJANGO_"))}
        self.environ = {**kept, "PROJECT_DATABASE": msgspec.json.encode(database).decode(), "PYTHONPATH": str(ROOT)}
        self.command = [sys.executable, "-W", "error", "manage.py"]
        self.dsn = dsn
        self._folder = folder
        self.write(FILES)

    def write(self, files):
        for name, text in files.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.lstrip())

    def run(self, *arguments):
        command = [*self.command, *arguments]
        return subprocess.run(command, env=self.environ, cwd=self._folder, capture_output=True, text=True, check=False, timeout=100)

    @contextmanager
    def working(self, *options):
        """`manage.py rxjobs run`, until it is told to stop, and drains."""
        with (self._folder / "log").open("w+") as log:
            command = [*self.command, "rxjobs", "run", *options]
            worker = subprocess.Popen(command, env=self.environ, cwd=self._folder, stderr=log)
            try:
                yield worker
            finally:
                worker.terminate()
                worker.wait(60)
            assert worker.returncode == 0, (self._folder / "log").read_text()

    def manage(self, *arguments):
        ran = self.run(*arguments)
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
        return ran.stdout


async def ask(dsn, sql):
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


def jobs(project):
    found = asyncio.run(ask(project.dsn, "SELECT type, state::text, count(*) FROM rxjobs.jobs GROUP BY 1, 2"))
    return {(kind, state): count for kind, state, count in found}


def wait_until(fact, worker):
    until = time.monotonic() + 60
    while not fact():
        assert worker.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        (
            {"NAME": "a b", "USER": "me@x", "PASSWORD": "p:/w", "HOST": "db", "PORT": 6432},
            "postgresql://me%40x:p%3A%2Fw@db:6432/a%20b",
        ),
        ({"NAME": "shop", "HOST": "/run/pg", "PORT": "5433", "USER": "me"}, "postgresql://me@/shop?host=%2Frun%2Fpg&port=5433"),
        ({"NAME": "shop", "HOST": "::1"}, "postgresql://[::1]/shop"),
        (
            {"HOST": "db", "OPTIONS": {"sslmode": "verify-full", "application_name": "x"}},
            "postgresql://db/postgres?sslmode=verify-full",
        ),
    ],
)
def test_a_database_of_the_settings_has_a_dsn(how, expected):
    from rxjobs.contrib.django.project import dsn_of

    assert dsn_of(how) == expected


def test_one_that_is_named_by_a_service_is_refused():
    import rxjobs as rj
    from rxjobs.contrib.django.project import dsn_of

    with pytest.raises(rj.InvalidOption, match="give its DSN as well"):
        dsn_of({"OPTIONS": {"service": "shop"}})
