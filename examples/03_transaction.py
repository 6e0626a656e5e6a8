"""Enqueue in your own transaction: the job exists if, and only if, what it is about does.

python examples/03_transaction.py
"""

import asyncio

import asyncpg

import rxjobs as rj

app = rj.App()


@app.job(name="orders.confirm", queue="orders")
async def confirm(order: int) -> None:
    print("confirmed order", order)


async def place_order(connection: asyncpg.Connection, number: int, paid: bool) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO example_orders VALUES ($1)", number)
        await app.enqueue(confirm.new(order=number), connection=connection)
        if not paid:
            raise ValueError("the card was declined")


async def main() -> None:
    async with app:
        connection = await asyncpg.connect(app.dsn)
        await connection.execute("CREATE TEMPORARY TABLE example_orders (number int)")
        await place_order(connection, 1, paid=True)
        try:
            await place_order(connection, 2, paid=False)
        except ValueError as error:
            print("order 2 was rolled back:", error)
        waiting = await app.jobs.list(queue="orders", state="available")
        print("jobs that wait:", [dict(job.args) for job in waiting])
        await app.jobs.delete(queue="orders")
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
