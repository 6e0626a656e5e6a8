# a table of the user's own, and a connection pool to its database
import asyncpg

app = await enter(rj.App(dsn, migrate=True))


@app.job(name="shop.send_welcome")
async def send_welcome(user_id: int) -> None: ...


@app.job
async def send_receipt(order_id: int) -> None: ...


pool = await enter(asyncpg.create_pool(dsn, min_size=1, max_size=2))
await pool.execute("CREATE TABLE orders (id int)")

# Django is set up once a process
ground.in_a_program["transaction.atomic"] = f"""
from urllib.parse import parse_qs, urlsplit
import django
from django.conf import settings
import rxjobs as rj

where = urlsplit({dsn!r})
more = parse_qs(where.query)
settings.configure(
    DATABASES={{"default": {{
        "ENGINE": "django.db.backends.postgresql", "NAME": where.path[1:], "USER": where.username, "PASSWORD": where.password or "",
        "HOST": where.hostname or more["host"][0], "PORT": where.port or more.get("port", [""])[0],
    }}}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
)
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction

call_command("migrate", verbosity=0)
app = rj.App({dsn!r})

@app.job
async def send_welcome(user_id: int) -> None: ...

"""
