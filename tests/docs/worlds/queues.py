# a node with the label that the page names, which takes from the queue that it names
app = rj.App(dsn, migrate=True, node="web-1")


@app.job(queue="mail")
async def send(tenant: str) -> None: ...


await enter(app.running())
