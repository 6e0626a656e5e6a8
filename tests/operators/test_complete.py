from __future__ import annotations

import rxjobs as rj
from rxjobs.testing import MemorySource, marbles


def test_it_settles_without_running():
    marbles(rj.complete(), "-a-[bc]-D-|", "-A-(BC)-D-|", values=dict.fromkeys("ABCD", rj.Complete))


def test_what_is_finished_keeps_its_outcome():
    marbles(rj.complete(), "-A-b|", "-A-B|", values={"A": rj.Discard("no"), "B": rj.Complete(None)})


def test_at_the_end_of_a_pipeline_it_settles_what_no_stage_has():
    otherwise = rj.filter(lambda job: job.args["letter"] == "a", otherwise=rj.Cancel("no"))
    pipeline = rj.pull(MemorySource(), max_demand=2).pipe(otherwise, rj.complete(), rj.ack())
    marbles(pipeline, "(ab)-|", "(AB)-|", values={"A": rj.Complete, "B": rj.Cancel("no")})
