# a user's module, and its app
ground.reader.write(
    "shop/jobs.py",
    """
import rxjobs as rj

app = rj.App(migrate=True)


@app.job
def send_digest() -> None: ...


@app.job
def sync(account: int) -> None: ...


@app.job
def sums() -> None: ...
""",
)
ground.environ["RXJOBS_DSN"] = dsn
from shop.jobs import app, send_digest, sums, sync

await enter(app)
