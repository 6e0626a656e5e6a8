from __future__ import annotations

import re
from itertools import pairwise

from tests.cli.test_doctor import found_by

WHY = "see the log of the leader for why it could not make the table: a lock that somebody keeps, or a right that is missing"


def test_the_history_is_partitioned_listed_and_examined(bare):
    assert bare("migrate").code == 0
    assert "rxjobs history partition --by month" in bare("history", "list").out
    assert found_by(bare, "history")[1] == [("ok", "finished jobs are in one table, and pruned row by row", None)]
    assert bare("history", "partition", "--by", "hour").code == 2
    ran = bare("history", "partition", "--by", "day")
    assert ran.code == 0
    assert re.fullmatch(r"jobs that finish since 20\S+ \S+Z are in a table for each day\n", ran.out)
    since = bare("history", "partition", "--by", "day", "--json").document["since"]
    parts = bare("history", "list", "--json").document
    assert [part["kind"] for part in parts] == ["before", *["period"] * (len(parts) - 3), "dead letters", "other"]
    assert (parts[0]["upper"], parts[1]["lower"]) == (since, since)
    assert all(one["upper"] == other["lower"] for one, other in pairwise(parts[:-2]))
    header, _, before, *_ = bare("history", "list").out.splitlines()
    assert header.split() == ["table", "for", "from", "until", "jobs", "(about)", "size"]
    assert before.split()[:2] == ["finished_jobs_before", "before"]
    (found,) = found_by(bare, "history")[1]
    assert found[0] == "ok"
    assert found[1].startswith("finished jobs have a table for each day, and for the next ")


def test_the_doctor_finds_a_table_that_is_missing_and_what_ended_without(bare):
    assert bare("migrate").code == 0
    bare.sql("SELECT rxjobs.partition_history('day', now() - interval '1 hour')")
    (tables,) = bare.sql("SELECT array_agg('rxjobs.' || name) AS names FROM rxjobs.history_parts() WHERE kind = 'period'")
    bare.sql(f"DROP TABLE {', '.join(tables['names'])}")
    bare.sql(
        "INSERT INTO rxjobs.finished_jobs "
        "(id, inserted_at, scheduled_at, state, attempt, max_attempts, priority, type, queue, args) "
        "VALUES (1, now(), now(), 'completed', 1, 1, 0, 'work', 'mail', '{}')"
    )
    assert found_by(bare, "history")[1] == [
        ("warning", "finished jobs have a table for each day, and for what comes only for 0.0 days", WHY),
        ("warning", "1 finished jobs had no table for their day and are in finished_jobs_other, to be pruned row by row", WHY),
    ]
