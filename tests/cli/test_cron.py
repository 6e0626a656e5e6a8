from __future__ import annotations


def test_entries_are_made_listed_paused_run_and_removed(rxjobs):
    assert rxjobs("cron", "list").out == "there is no entry of cron: app.cron(...) in code, or rxjobs cron add, makes one\n"
    add = ("cron", "add", "sums", "0 8 * * 1-5", "add", "--app", "shop:app", "--tz", "Europe/Berlin", "first=1")
    assert rxjobs(*add).out == "entry sums made\n"
    assert rxjobs(*add, "--missed", "skip").out == "entry sums changed\n"
    header, _, row = rxjobs("cron", "list").out.splitlines()
    assert header.split() == ["name", "expression", "zone", "missed", "job", "type", "queue", "by", "next"]
    assert row.split()[:11] == ["sums", "0", "8", "*", "*", "1-5", "Europe/Berlin", "skip", "add", "default", "hand"]
    assert rxjobs("cron", "pause", "sums").out == "entry sums paused\n"
    assert "paused since" in rxjobs("cron", "list").out
    assert rxjobs("cron", "pause", "sums").out == "entry sums: nothing to do, it was paused already\n"
    assert rxjobs("cron", "resume", "sums", "--json").document == {"name": "sums", "changed": True}
    made = rxjobs("cron", "run", "sums", "--json").document
    assert rxjobs("jobs", "show", str(made["id"]), "--json").document["args"] == {"first": 1}
    (entry,) = rxjobs("cron", "list", "--json").document
    assert (entry["is_on"], entry["is_declared"], entry["paused_at"]) == (True, False, None)
    assert entry["next_slot"].endswith(("06:00:00Z", "07:00:00Z"))
    assert rxjobs("cron", "remove", "sums").out == "entry sums removed\n"
    assert rxjobs("cron", "list", "--json").document == []


def test_a_mistake_is_named_in_one_line(rxjobs):
    for arguments, words in [
        (["cron", "pause", "nothing"], "there is no entry of cron named 'nothing'; there are none"),
        (["cron", "add", "x", "8 * * *", "add", "--app", "shop:app", "first=1"], "cron takes five fields"),
        (["cron", "add", "x", "@hourly", "add", "--app", "shop:app", "--tz", "Nowhere", "first=1"], "no time zone 'Nowhere'"),
        (["cron", "add", "x", "@hourly", "nothing", "--app", "shop:app"], "no job type 'nothing'"),
    ]:
        result = rxjobs(*arguments)
        assert (result.code, len(result.err.splitlines())) == (2, 1)
        assert words in result.err
