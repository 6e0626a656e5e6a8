"""A sink that appends to files: what gathered is written at once and is on the disk before its jobs are acked.

A plain function runs in a thread, so that a slow disk holds up nobody. Should the process die between the write and the
ack, those lines are written again: each says which job it is of, so that a reader can tell.

python examples/10_file_writer.py
"""

import asyncio
import os
import tempfile
from collections import defaultdict
from pathlib import Path

from reactivex import operators as ops

import rxjobs as rj

FOLDER = Path(tempfile.mkdtemp(prefix="rxjobs-example-"))
LETTERS = "abc"


def line(n: int) -> rj.Job:
    """Item n as a job: a line for one of three files."""
    return rj.Job(id=n, type="line", args={"file": f"{LETTERS[n % 3]}.txt", "text": f"line {n}"})


def append(jobs: list[rj.Job]) -> None:
    """Append the jobs' lines, file by file. What raises here fails all of them, and they are tried again."""
    lines = defaultdict(list)
    for job in jobs:
        lines[job.args["file"]].append(f"{job.id}\t{job.args['text']}\n")
    for name, texts in lines.items():
        with (FOLDER / name).open("a", encoding="utf-8") as file:
            file.writelines(texts)
            file.flush()
            os.fsync(file.fileno())


async def main() -> None:
    written = await rj.pull(rj.IterableSource(range(1, 301), line), max_demand=100).pipe(
        rj.buffer(50, timespan=0.1),
        rj.execute_batch(append),  # one call at a time keeps the order of the lines
        rj.ack(),
        ops.count(),
        ops.to_future(),
    )
    print("lines written:", written)


if __name__ == "__main__":
    asyncio.run(main())
    for path in sorted(FOLDER.iterdir()):
        ids = [int(each.split("\t")[0]) for each in path.read_text("utf-8").splitlines()]
        print(path.name, len(ids), "in order:", ids == sorted(ids))
        path.unlink()
    FOLDER.rmdir()
