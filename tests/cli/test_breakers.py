from __future__ import annotations


def test_breakers_are_opened_listed_and_closed_by_hand(rxjobs):
    assert rxjobs("breakers", "list").out == "no breaker has anything to tell: no job has failed\n"
    opened = rxjobs("breakers", "open", "send", "--app", "shop:app")
    assert opened.out == "breaker of send opened: no job of it starts until it is closed\n"
    assert rxjobs("breakers", "open", "send").out == "breaker of send: nothing to do, it was open by hand already\n"
    header, _, row = rxjobs("breakers", "list").out.splitlines()
    assert header.split() == ["job", "type", "state", "since", "probes", "in", "failures", "probing"]
    assert row.split()[:2] == ["send", "open"]
    assert "closed by hand" in row
    assert rxjobs("breakers", "close", "send").out == "breaker of send closed\n"
    assert rxjobs("breakers", "close", "send").out == "breaker of send: nothing to do, it was closed already\n"


def test_breakers_are_answered_in_json(rxjobs):
    assert rxjobs("breakers", "list", "--json").document == []
    assert rxjobs("breakers", "open", "send", "--app", "shop:app", "--json").document == {"type": "send", "changed": True}
    (one,) = rxjobs("breakers", "list", "--json").document
    assert one.pop("moved_at")
    assert one == {"type": "send", "state": "open", "wait": None, "is_by_hand": True, "failures": 0, "probing": 0, "queue": None}
    listed = rxjobs("breakers", "list", "--app", "shop:app", "--json").document
    assert [(row["type"], row["state"]) for row in listed] == [
        ("add", "closed"), ("fail", "closed"), ("send", "open"), ("wait", "closed"),
    ]  # fmt: skip
    assert rxjobs("breakers", "close", "send", "--json").document == {"type": "send", "changed": True}


def test_a_job_type_that_nobody_knows_and_one_without_a_breaker_are_mistakes(rxjobs):
    ran = rxjobs("breakers", "open", "sned")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("rxjobs: no job type 'sned' is known: ")
    assert ran.err.count("\n") == 1
    rxjobs.write("plain.py", "import rxjobs as rj\n\napp = rj.App()\n\n\n@app.job(name='plain', breaker=None)\ndef plain(): ...\n")
    ran = rxjobs("breakers", "close", "plain", "--app", "plain:app")
    assert (ran.code, ran.err) == (2, "rxjobs: job type 'plain' has no breaker: it is declared with breaker=None\n")


def test_the_doctor_names_breakers_that_are_not_closed(rxjobs):
    def found():
        findings = rxjobs("doctor", "--json").document["findings"]
        return [(one["state"], one["found"], one["advice"]) for one in findings if one["check"] == "breakers"]

    assert found() == [("ok", "none is open", None)]
    rxjobs("breakers", "open", "send", "--app", "shop:app")
    ((state, text, advice),) = found()
    assert (state, advice) == ("warning", "rxjobs breakers close send")
    assert text.startswith("the breaker of send was opened by hand at ")
    rxjobs.sql("UPDATE rxjobs.breakers SET is_by_hand = false")
    ((state, text, advice),) = found()
    assert state == "warning"
    assert "is open since" in text
