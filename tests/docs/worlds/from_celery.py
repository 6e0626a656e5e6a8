# a node that runs
import asyncio

app = rj.App(dsn, migrate=True)


@app.job
async def begin() -> None: ...


await enter(app.running())
