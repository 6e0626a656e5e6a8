"""The disk is full: what does not fit is refused clearly, and nothing that has ended is forgotten."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from tests.chaos.enqueuer import definitions
from tests.chaos.faults import put
from tests.chaos.ground import Ground
from tests.chaos.loaded import HANG, enqueuing_both, judge, lost_attempts, shown
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


@pytest.fixture
def small_disk(server):
    """A folder of 24 MiB that is the server's."""
    folder = Path(tempfile.mkdtemp(prefix="rxjobs-disk-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"a small file system cannot be mounted here (only root may): {mounted.stderr.strip()}")
    owner = server.owner
    os.chown(folder, owner.st_uid, owner.st_gid)
    folder.chmod(0o700)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
    folder.rmdir()


@pytest.fixture
async def ground(server, small_disk):
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    async with Ground(server, tablespace="small") as ground:
        yield ground
    await connection.execute("DROP TABLESPACE small")
    await connection.close()


def fill(folder):
    """Leave no room for another block; gives the file that takes it all."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


async def test_on_a_full_disk_enqueues_are_refused_clearly_and_outcomes_that_fit_are_written(ground, small_disk, tmp_path):
    """F16: what needs more room than there is waits for it, and holds up none of those behind it."""
    (worker,) = await ground.start()
    async with enqueuing_both(ground):
        pass
    await ground.drained()
    await leave_room_in_its_pages(ground)
    # each needs pages of its own to be moved among the finished, which the small ones do not; they end in between
    full = tmp_path / "full"
    large = [await put(ground, "gated", key=secrets.token_hex(200_000), gate=str(full), seconds=0.5) for _ in range(3)]
    small = [await put(ground, "gated", key=f"small/{n}", gate=str(full), seconds=n / 8) for n in range(12)]
    await ground.running(*small, *large)
    ballast = fill(small_disk)
    full.touch()
    async with definitions(ground.dsn) as app:
        with pytest.raises(asyncpg.DiskFullError, match="No space left on device"):
            await enqueue_many(app)
    await until(lambda: "they are kept and tried again, while others go on" in worker.log)
    await until(lambda: finished(ground, small, 12), seconds=HANG)
    assert await finished(ground, large, 0)
    ballast.unlink()
    async with enqueuing_both(ground):
        shown("with room again", twenty_jobs=await ground.started(20, seconds=HANG))
    await judge(ground)
    assert await lost_attempts(ground) == 0
    assert await finished(ground, small + large, 15)
    assert "there is room again" in worker.log


async def leave_room_in_its_pages(ground):
    """As pruning does in a table that has been in use."""
    for n in range(100):
        await put(ground, "work", key=f"pruned/{n}")
    await ground.drained()
    await ground.execute(
        "SET session_replication_role = replica; DELETE FROM rxjobs.finished_jobs WHERE args->>'key' LIKE 'pruned/%'"
    )
    await ground.execute("VACUUM (TRUNCATE off) rxjobs.finished_jobs")


async def enqueue_many(app):
    """More than there is room for on the pages that the table has."""
    work = app.definition("work")
    for n in range(2000):
        await app.enqueue(work.new(key=f"full/{n}/{'x' * 1000}"))


async def finished(ground, ids, count):
    """Whether so many of them are written down as completed at their first attempt."""
    written = "SELECT count(*) FROM rxjobs.finished_jobs WHERE id = ANY ($1::bigint[]) AND state = 'completed' AND attempt = 1"
    with suppress(asyncpg.DiskFullError):  # a look may need a block too
        return await ground.value(written, ids) == count
    return False
