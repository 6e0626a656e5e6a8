# a dead letter with the number that the page names


from datetime import timedelta

import rxjobs.testing


class chat:
    @staticmethod
    async def send(text): ...


app = await enter(rj.App(dsn, migrate=True))
connection = await connect()
await rj.testing.fill(connection, "shop.jobs.send_welcome", 3, queue="mail", state="discarded")
await connection.execute("UPDATE rxjobs.finished_jobs SET id = 42 WHERE id = 1")
await connection.close()
