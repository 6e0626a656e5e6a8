# a node that runs
app = rj.App(dsn, migrate=True, node="web-1")


@app.job
async def work() -> None: ...


await enter(app.running())
