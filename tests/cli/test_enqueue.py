from __future__ import annotations

import json

JOB = "SELECT type, queue, state, args, priority, tags, scheduled_at > now() + interval '1 minute' AS is_late FROM rxjobs.jobs"


def test_a_value_is_json_or_else_text(rxjobs):
    ran = rxjobs("enqueue", "send", "--app", "shop:app", "user_id=7", "locale=de")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "job 1 of send in queue mail: available\n"
    (row,) = rxjobs.sql(JOB)
    assert json.loads(row["args"]) == {"user_id": 7, "locale": "de"}
    assert (row["type"], row["queue"], row["tags"]) == ("send", "mail", ["letters"])


def test_all_arguments_come_as_one_object_and_the_answer_in_json(rxjobs):
    ran = rxjobs(
        "enqueue", "send", "--app=shop:app", '--args={"user_id": 7}', "--delay=3600", "--priority=2", "--queue=other", "--json"
    )
    assert ran.document == {"id": 1, "state": "scheduled", "duplicate": False, "type": "send", "queue": "other"}
    (row,) = rxjobs.sql(JOB)
    assert (row["queue"], row["state"], row["priority"], row["is_late"]) == ("other", "scheduled", 2, True)


def test_arguments_that_a_function_takes_by_position_are_named_too(rxjobs):
    assert rxjobs("enqueue", "add", "--app", "shop:app", "first=1", "more=[2,3]").code == 0
    (row,) = rxjobs.sql(JOB)
    assert json.loads(row["args"]) == {"first": 1, "more": [2, 3]}


def test_options_win_over_the_apps_own_settings(rxjobs):
    rxjobs.write(
        "fixed.py",
        "import rxjobs as rj\napp = rj.App('postgresql://127.0.0.1:1/none', schema='none')\napp.job(name='it')(print)\n",
    )
    assert rxjobs("enqueue", "it", "--app", "fixed:app").code == 2
    assert rxjobs("enqueue", "it", "--app", "fixed:app", "--dsn", rxjobs.dsn, "--schema", "rxjobs").code == 0
    assert rxjobs.states() == {1: "available"}
