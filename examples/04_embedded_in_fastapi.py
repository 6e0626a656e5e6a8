"""Run jobs inside a web application, in its own event loop.

uvicorn --app-dir examples 04_embedded_in_fastapi:web        (or, for a look: python examples/04_embedded_in_fastapi.py)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

import rxjobs as rj

app = rj.App()


@app.job(name="thumbnails.make", queue="thumbnails")
async def make_thumbnail(picture: str) -> None:
    await asyncio.sleep(0.05)


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with app.running():
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/pictures/{name}")
async def upload(name: str) -> dict[str, object]:
    row = await make_thumbnail.enqueue(picture=name)
    return {"job": row.id, "state": row.state}


@web.get("/jobs/{job_id}")
async def status(job_id: int) -> dict[str, object]:
    job = await app.jobs.get(job_id)
    if job is None:
        raise HTTPException(404)
    return {"job": job.id, "state": job.state, "attempt": job.attempt}


async def look() -> None:
    import httpx

    async with lifespan(web), httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://localhost") as browser:
        answer = (await browser.post("/pictures/cat.png")).json()
        print(answer)
        while answer["state"] != "completed":
            answer = (await browser.get(f"/jobs/{answer['job']}")).json()
        print(answer)


if __name__ == "__main__":
    asyncio.run(look())
