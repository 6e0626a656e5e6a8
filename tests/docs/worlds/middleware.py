# an app whose jobs are for one tenant or another
import contextvars
import time

import msgspec

import rxjobs.testing

tenant = contextvars.ContextVar("tenant")
took, seen_by_jobs = [], []
app = rj.App(dsn)


@app.job(name="look_up")
async def look_up(what: str) -> str:
    seen_by_jobs.append(tenant.get())
    return {"shelf": "found"}[what]
