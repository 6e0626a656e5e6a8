"""Run jobs inside a Starlette application, in its own event loop; what it answers at once is enqueued, and worked on behind it.

uvicorn --app-dir examples 12_embedded_in_starlette:web      (or, for a look: python examples/12_embedded_in_starlette.py)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import rxjobs as rj

app = rj.App()


@app.job(name="thumbnails.make", queue="thumbnails")
async def make_thumbnail(picture: str) -> None:
    await asyncio.sleep(0.05)


async def upload(request: Request) -> JSONResponse:
    row = await make_thumbnail.enqueue(picture=request.path_params["name"])
    return JSONResponse({"job": row.id, "state": row.state})


async def status(request: Request) -> JSONResponse:
    job = await app.jobs.get(request.path_params["job_id"])
    if job is None:
        return JSONResponse({"detail": "Not Found"}, status_code=404)
    return JSONResponse({"job": job.id, "state": job.state, "attempt": job.attempt})


@asynccontextmanager
async def lifespan(web: Starlette) -> AsyncIterator[None]:
    async with app.running():
        yield


web = Starlette(
    routes=[Route("/pictures/{name}", upload, methods=["POST"]), Route("/jobs/{job_id:int}", status)],
    lifespan=lifespan,
)


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
