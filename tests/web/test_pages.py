"""What the pages show, and what they do not."""

from __future__ import annotations

import html
import json
import re

import pytest

from tests.waiting import until
from tests.web.conftest import OURS, dead_letter, job

PAGES = ["/", "/jobs", "/dead", "/cron", "/breakers", "/overview.json"]
STATUS = {
    "lease_seconds": 3600.0, "host": "far-away",
    "pipelines": [
        {
            "name": "letters", "queues": ["mail"], "held": 42, "max_demand": 200, "demand": 158, "rate": 97.25,
            "rates": {"mail": 97.25},
            "stages": [{"name": "look up", "rate": 98.5, "running": 12, "waiting": 4, "limit": 20}],
        }
    ],
}  # fmt: skip
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


async def node(connection, label="one", status=STATUS):
    await connection.execute(
        "INSERT INTO rxjobs.nodes (id, label, pid, expires_at, serves, status) "
        "VALUES (gen_random_uuid(), $1, 77, now() + interval '59 minutes', '{\"mail\": []}', $2)",
        label, json.dumps(status),
    )  # fmt: skip


async def test_the_overview_shows_pipelines_queues_nodes_and_types(dashboard, connection):
    await node(connection)
    await job(connection)
    await dead_letter(connection, type="slow")
    web = await dashboard()
    answer = await web.get("/")
    assert answer.status_code == 200
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text))
    assert "letters mail 1 42/200 158 97" in text
    assert "look up 12/20 4 98" in text
    assert "mail 1 0 0 0 0" in text
    assert "far-away" in text
    assert "slow 1 1" in text
    told = (await web.get("/overview.json")).json()
    assert (told["flows"][0]["name"], told["rates"]) == ("letters", {"mail": 97.25})


async def test_every_page_answers_in_an_empty_database(dashboard):
    web = await dashboard()
    for page in PAGES:
        answer = await web.get(page)
        assert answer.status_code == 200, page


async def test_jobs_are_filtered_and_a_page_has_200_rows_at_most(dashboard, connection):
    await connection.execute("INSERT INTO rxjobs.live_jobs (type, queue) SELECT 'send', 'mail' FROM generate_series(1, 205)")
    await connection.execute("INSERT INTO rxjobs.live_jobs (type, queue, tags) VALUES ('render', 'media', '{big}')")
    web = await dashboard()
    page = (await web.get("/jobs?limit=200")).text
    ids = [int(id_) for id_ in re.findall(r'href="/jobs/(\d+)"', page)]
    assert ids == [*range(206, 6, -1)]
    older = re.search(r'href="(\?[^"]*)">older', page)[1].replace("&amp;", "&")
    assert [int(id_) for id_ in re.findall(r'href="/jobs/(\d+)"', (await web.get(f"/jobs{older}")).text)] == [*range(6, 0, -1)]
    for query in ("queue=media", "type=render", "tag=big", "queue=media&state=available"):
        assert re.findall(r'href="/jobs/(\d+)"', (await web.get(f"/jobs?{query}")).text) == ["206"], query
    assert "no job matches" in (await web.get("/jobs?state=completed")).text


@pytest.mark.parametrize(
    "query",
    ["limit=201", "limit=0", "limit=-1", "limit=1e3", "limit=many", "after=x", f"after={2**63}", "after=٣", "state=broken",
     "queue=%00", "colour=red", "tag=%ff%00"],
)  # fmt: skip
async def test_a_bad_parameter_is_told_and_asks_the_database_nothing(dashboard, query):
    web = await dashboard()
    answer = await web.get(f"/jobs?{query}")
    assert answer.status_code == 400
    assert "<h2>400</h2>" in answer.text


async def test_a_job_is_shown_with_every_attempt_and_a_link_to_its_trace(dashboard, connection):
    errors = [
        {"attempt": 1, "type": "shop.NoStock", "message": "none left", "traceback": "Traceback\n  line two", "node": "one",
         "at": "2026-01-01T00:00:00Z", "trace_id": TRACE_ID},
        {"attempt": 2, "type": "ValueError", "message": "odd", "trace_id": "javascript:alert(1)"},
    ]  # fmt: skip
    id_ = await dead_letter(connection, errors=json.dumps(errors), forensics='{"load": [0.5], "memory": 7}')
    web = await dashboard(trace_url="http://traces.example/trace/{trace_id}")
    page = (await web.get(f"/jobs/{id_}")).text
    assert "Attempt 1: shop.NoStock: none left" in page
    assert "  line two" in page
    assert f'href="http://traces.example/trace/{TRACE_ID}"' in page
    assert page.count("http://traces.example") == 1
    assert "Attempt 2: ValueError: odd" in page
    assert "[0.5]" in page
    assert (await web.get("/jobs/4711")).status_code == 404
    assert (await web.get(f"/jobs/{2**80}")).status_code == 404


SECRET, CANARY = "a-secret-canary", "an-argument-canary"
ARGS = json.dumps({"key": {"rxjobs.secret": SECRET}, "text": CANARY})


@pytest.mark.parametrize("shows", [False, True])
async def test_arguments_are_shown_only_when_asked_for_and_secrets_never(dashboard, connection, shows):
    waiting = await job(connection, args=ARGS)
    dead = await dead_letter(connection, args=ARGS, meta=json.dumps({"text": CANARY}))
    web = await dashboard(shows_args=shows)
    texts = {page: (await web.get(page)).text for page in [*PAGES, f"/jobs/{waiting}", f"/jobs/{dead}"]}
    assert {page for page, text in texts.items() if CANARY in text} == ({f"/jobs/{waiting}", f"/jobs/{dead}"} if shows else set())
    assert not any(SECRET in text for text in texts.values())
    assert ("***" in texts[f"/jobs/{waiting}"]) is shows


async def test_a_database_that_does_not_answer_in_time_is_told_as_such(dashboard, connection):
    web = await dashboard()
    async with connection.transaction():
        await connection.execute("LOCK TABLE rxjobs.live_jobs")
        answer = await web.get("/jobs")
        left = "SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        assert answer.status_code == 503
        assert "within 2 s" in answer.text
        await until(lambda: connection.fetchval(left))  # nor does it go on in the server
    assert (await web.get("/jobs")).status_code == 200


async def test_queues_that_are_not_counted_in_time_leave_the_rest_of_the_overview(dashboard, connection):
    await node(connection)
    web = await dashboard()
    async with connection.transaction():
        await connection.execute("LOCK TABLE rxjobs.live_jobs")
        answer = await web.get("/")
    assert answer.status_code == 200
    assert "too many jobs to be counted" in answer.text
    assert "letters" in answer.text
    assert "far-away" in answer.text


async def test_buttons_do_what_they_say(dashboard, connection):
    waiting, dead = await job(connection), await dead_letter(connection, errors='[{"type": "ValueError"}]')
    await connection.execute("INSERT INTO rxjobs.breakers (type, state) VALUES ('send', 'closed')")
    await connection.execute(
        "INSERT INTO rxjobs.nodes (id, label, pid, expires_at, serves) "
        "VALUES (gen_random_uuid(), 'one', 1, now() + interval '1 hour', '{\"mail\": [\"send\"]}')"
    )
    web = await dashboard()

    async def done(where, wish, found):
        answer = await web.post(where, json=wish, headers=OURS)
        assert answer.status_code == 200, answer.text
        return answer.json()["changed"], await connection.fetchval(found)

    paused = "SELECT paused_at IS NOT NULL FROM rxjobs.queues WHERE queue = 'mail'"
    assert await done("/do/queues", {"do": "pause", "queue": "mail"}, paused) == (True, True)
    assert await done("/do/queues", {"do": "pause", "queue": "mail"}, paused) == (False, True)
    assert "on all nodes" in (await web.get("/")).text
    assert (await done("/do/queues", {"do": "resume", "queue": "mail"}, paused))[0] is True
    state = "SELECT state FROM rxjobs.jobs WHERE id = {}"
    assert await done("/do/dead", {"error": "ValueError", "rate": 5}, state.format(dead)) == (1, "available")
    assert await done("/do/jobs", {"do": "cancel", "ids": [waiting]}, state.format(waiting)) == (1, "cancelled")
    assert await done("/do/jobs", {"do": "retry", "ids": [waiting]}, state.format(waiting)) == (1, "available")
    assert await done("/do/jobs", {"do": "delete", "ids": [waiting]}, state.format(waiting)) == (1, None)
    breaker = "SELECT state FROM rxjobs.breakers"
    assert await done("/do/breakers", {"do": "open", "type": "send"}, breaker) == (True, "open")
    assert await done("/do/breakers", {"do": "close", "type": "send"}, breaker) == (True, "closed")


async def test_a_job_whose_id_a_javascript_number_does_not_hold_is_shown_and_its_buttons_mean_it(dashboard, connection):
    """F51, and as pgqueuer#676 (row 36): a script that read the id would round it to that of the job before."""
    await connection.execute(f"SELECT setval(pg_get_serial_sequence('rxjobs.live_jobs', 'id'), {2**53 - 1})")
    before, large = await job(connection), await job(connection)
    assert (before, large) == (2**53, 2**53 + 1)
    web = await dashboard()
    assert re.findall(r'href="/jobs/(\d+)"', (await web.get("/jobs")).text) == [str(large), str(before)]
    page = (await web.get(f"/jobs/{large}")).text
    assert str(large) in page
    bodies = [html.unescape(body) for body in re.findall(r'data-post="/do/jobs" data-body="([^"]*)"', page)]
    (cancel,) = [body for body in bodies if "cancel" in body]
    answer = await web.post("/do/jobs", content=cancel, headers={**OURS, "content-type": "application/json"})
    assert answer.json()["changed"] == 1
    assert await connection.fetch("SELECT id, state::text FROM rxjobs.jobs ORDER BY id") == [
        (before, "available"),
        (large, "cancelled"),
    ]


async def test_entries_of_cron_are_paused_run_and_removed(dashboard, connection, migrated):
    await connection.execute("INSERT INTO rxjobs.job_types (name, queue, priority, max_attempts) VALUES ('digest', 'mail', 0, 20)")
    import rxjobs as rj

    async with rj.App(migrated) as app:

        @app.job(name="digest", queue="mail")
        async def digest() -> None: ...

        await app.cron.add("daily", "0 8 * * *", digest.new())
    web = await dashboard()
    assert "daily" in (await web.get("/cron")).text
    for do, column in (("pause", "pause"), ("resume", "resume"), ("run", "run")):
        answer = await web.post("/do/cron", json={"do": do, "name": "daily"}, headers=OURS)
        assert (answer.status_code, answer.json()["done"]) == (200, column)
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE type = 'digest'") == 1
    assert (await web.post("/do/cron", json={"do": "remove", "name": "daily"}, headers=OURS)).json()["changed"] is True
    assert (await web.post("/do/cron", json={"do": "run", "name": "daily"}, headers=OURS)).status_code == 404


@pytest.mark.parametrize(
    ("where", "wish"),
    [
        ("/do/jobs", {"do": "cancel", "ids": []}), ("/do/jobs", {"do": "cancel", "ids": [0]}), 
        ("/do/jobs", {"do": "drop", "ids": [1]}),
        ("/do/jobs", {"do": "cancel", "ids": [*range(1, 202)]}), ("/do/jobs", {"do": "cancel"}), ("/do/jobs", []),
        ("/do/dead", {}), ("/do/dead", {"rate": 5}), 
        ("/do/dead", {"error": "x", "rate": 0}), ("/do/dead", {"error": "x", "more": 1}),
        ("/do/queues", {"do": "pause", "queue": ""}), ("/do/queues", {"do": "pause", "queue": 7}),
    ],
)  # fmt: skip
async def test_a_wish_that_cannot_be_granted_is_told(dashboard, where, wish):
    web = await dashboard()
    answer = await web.post(where, json=wish, headers=OURS)
    assert answer.status_code == 400
    assert answer.json()["error"]


async def test_an_unknown_queue_and_a_body_that_is_no_json_are_told(dashboard):
    web = await dashboard()
    answer = await web.post("/do/queues", json={"do": "pause", "queue": "nobody"}, headers=OURS)
    assert (answer.status_code, "nobody" in answer.json()["error"]) == (404, True)
    answer = await web.post("/do/queues", content=b"\xff{", headers={**OURS, "content-type": "application/json"})
    assert answer.status_code == 400
