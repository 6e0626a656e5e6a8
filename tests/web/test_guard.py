"""Who gets in, what other sites can do, and what no request reaches."""

from __future__ import annotations

import asyncio

import pytest

from rxjobs.errors import InvalidOption
from rxjobs.web.entrance import SESSION_SECONDS, TRIES, TRY_SECONDS, Entrance
from rxjobs.web.guard import HEADERS
from rxjobs.web.options import Role, WebOptions
from tests.web.conftest import OURS, TOKEN, VIEW_TOKEN, dead_letter, job

READ = ["/", "/overview.json", "/jobs", "/jobs/1", "/dead", "/cron", "/breakers"]
CHANGE = ["/do/jobs", "/do/dead", "/do/queues", "/do/cron", "/do/breakers"]
PAUSE = {"do": "pause", "queue": "mail"}
PAUSED = "SELECT count(*) FROM rxjobs.queues WHERE paused_at IS NOT NULL"


async def raw(web, path, host=None, method="GET"):
    """The status of a request whose path and Host are sent as they are."""
    port = web.base_url.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    host = f"127.0.0.1:{port}" if host is None else host
    writer.write(f"{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1]), answer.decode()


async def test_every_answer_carries_what_keeps_a_browser_from_being_misused(dashboard):
    web = await dashboard()
    for path in (
        "/",
        "/nowhere",
        "/static/rxjobs.js",
        "/static/icon.svg",
        "/static/nothing.js",
        "/jobs?limit=0",
        "/overview.json",
        "/do/queues",
    ):
        answer = await web.get(path)
        assert HEADERS.items() <= answer.headers.items(), path
        assert "server" not in answer.headers
        assert "set-cookie" not in answer.headers
    assert "unsafe" not in HEADERS["content-security-policy"]


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "same-origin", "origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site", "origin": "OURS"}, {"origin": "file://OURHOST"}, {"referer": "OURS"},
        {"authorization": "Bearer whatever"},
    ],
)  # fmt: skip
async def test_what_another_site_asks_for_changes_nothing(dashboard, connection, headers):
    await job(connection)
    web = await dashboard()
    ours = str(web.base_url).rstrip("/")
    headers = {
        name: value.replace("OURS", ours).replace("OURHOST", web.base_url.netloc.decode()) for name, value in headers.items()
    }
    answer = await web.post("/do/queues", json=PAUSE, headers=headers)
    assert answer.status_code == 403
    assert await connection.fetchval(PAUSED) == 0


async def test_our_own_pages_may_whichever_way_a_browser_says_that_they_are_ours(dashboard, connection):
    await job(connection)
    web = await dashboard()
    for headers in (OURS, {"origin": str(web.base_url).rstrip("/")}, {**OURS, "origin": str(web.base_url).rstrip("/")}):
        assert (await web.post("/do/queues", json=PAUSE, headers=headers)).status_code == 200
    assert await connection.fetchval(PAUSED) == 1


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", "", "application/jsonp"]
)
async def test_what_a_form_can_send_is_refused(dashboard, connection, kind):
    await job(connection)
    web = await dashboard()
    answer = await web.post("/do/queues", content=b'{"do": "pause", "queue": "mail"}', headers={**OURS, "content-type": kind})
    assert answer.status_code == 415
    assert await connection.fetchval(PAUSED) == 0


async def test_nothing_is_changed_by_other_methods(dashboard, connection):
    await job(connection)
    web = await dashboard()
    for path in CHANGE:
        assert (await web.get(path, headers=OURS)).status_code == 405
        for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"):
            assert (await web.request(method, path, headers=OURS)).status_code == 405
    too_long = await web.post("/do/queues", json={**PAUSE, "queue": "x" * 70_000}, headers=OURS)
    assert too_long.status_code == 413

    async def pieces():
        yield b"{}"

    unknown = await web.post("/do/queues", content=pieces(), headers={**OURS, "content-type": "application/json"})
    assert unknown.status_code == 411


@pytest.mark.parametrize(
    "path",
    [
        "/static/../site.py", "/static/..%2fsite.py", "/static/%2e%2e/site.py", "/static/rxjobs.js%00", "//evil.example/",
        "/static//etc/passwd", "/static/....//site.py", "/\\evil.example", "/static/..\\site.py", "/jobs/1%2f..", "/static/",
        "/static", "/jobs/-1", "/jobs/1.0", "/jobs/abc", "/jobs/", "/templates/base.html",
    ],
)  # fmt: skip
async def test_no_path_leads_elsewhere(dashboard, path):
    web = await dashboard()
    status, answer = await raw(web, path)
    assert status == 404
    assert "location:" not in answer.lower()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8800", "127.0.0.1.evil.example", "", "localhost.evil.example", "10.0.0.1"]
)
async def test_a_host_that_is_not_ours_is_refused(dashboard, host):
    web = await dashboard()
    assert (await raw(web, "/", host))[0] == 400


async def test_this_machine_may_be_called_by_its_names(dashboard):
    web = await dashboard()
    for host in ("localhost", "localhost:1234", "127.0.0.1", "[::1]:80"):
        assert (await raw(web, "/", host))[0] == 200


async def test_every_route_needs_a_role(dashboard, connection):
    await job(connection)
    await dead_letter(connection)
    web = await dashboard(token=TOKEN, view_token=VIEW_TOKEN)
    people = {"nobody": {}, "view": bearer(VIEW_TOKEN), "operate": bearer(TOKEN)}
    read = {"nobody": 401, "view": 200, "operate": 200}
    change = {"nobody": 401, "view": 403, "operate": 400}  # an empty wish is looked at only then
    for who, headers in people.items():
        for path in READ:
            assert (path, (await web.get(path, headers=headers)).status_code) == (path, read[who])
        for path in CHANGE:
            answer = await web.post(path, json={}, headers={**OURS, **headers})
            assert (path, answer.status_code) == (path, change[who])
    # and these are all there are
    known = {path.replace("/1", "/{id:int}") for path in [*READ, *CHANGE]}
    assert {route.path for route in routes()} - {"/login", "/logout", "/static/{name}"} == known


async def test_wrong_tokens_are_refused_and_too_many_close_the_door_to_their_address(dashboard):
    web = await dashboard(token=TOKEN)
    for _ in range(TRIES):
        assert (await web.get("/jobs", headers=bearer("wrong"))).status_code == 401
    assert (await web.get("/jobs", headers=bearer(TOKEN))).status_code == 401
    assert (await web.post("/login", json={"token": TOKEN}, headers=OURS)).status_code == 429


def routes():
    import rxjobs as rj
    from rxjobs.web.site import site

    return site(rj.App("postgresql://nowhere"), WebOptions())._app.routes


def bearer(token):
    return {"authorization": f"Bearer {token}"}


async def test_a_browser_logs_in_with_a_token_and_out(dashboard):
    web = await dashboard(token=TOKEN)
    answer = await web.get("/jobs", headers={"accept": "text/html"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert "<form data-post" in (await web.get("/login")).text
    wrong = await web.post("/login", json={"token": "wrong"}, headers=OURS)
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    assert (await web.post("/login", json={"token": TOKEN}, headers={"sec-fetch-site": "cross-site"})).status_code == 403
    right = await web.post("/login", json={"token": TOKEN}, headers=OURS)
    assert right.json()["role"] == "operate"
    cookie = right.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))
    assert TOKEN not in cookie
    assert (await web.get("/jobs")).status_code == 200
    assert (await web.post("/do/queues", json={}, headers=OURS)).status_code == 400
    assert (await web.post("/do/queues", json=PAUSE)).status_code == 403  # a cookie is no proof of who asks
    session = {"cookie": cookie.partition(";")[0]}
    assert (await web.get("/jobs", headers=session)).status_code == 200
    assert (await web.post("/logout", json={}, headers=OURS)).status_code == 200
    assert (
        await web.get("/jobs", cookies=None, headers={"cookie": "; ".join(f"{k}={v}" for k, v in session.items())})
    ).status_code == 401


async def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_only_and_its_host_is_known(dashboard):
    web = await dashboard(token=TOKEN, origin="https://jobs.example.org")
    headers = {"host": "jobs.example.org", "origin": "https://jobs.example.org"}
    answer = await web.post("/login", json={"token": TOKEN}, headers=headers)
    assert answer.status_code == 200
    assert "Secure" in answer.headers["set-cookie"]
    assert (await web.post("/login", json={"token": TOKEN}, headers={**headers, "host": "other.example.org"})).status_code == 400


async def test_who_may_only_look_gets_no_buttons(dashboard, connection):
    await job(connection)
    for options, count in (({}, 1), ({"is_read_only": True}, 0)):
        web = await dashboard(**options)
        assert (await web.get("/")).text.count("/do/queues") == count
    answer = await web.post("/do/queues", json=PAUSE, headers=OURS)
    assert answer.status_code == 403
    assert await connection.fetchval(PAUSED) == 0


def test_wrong_tokens_are_looked_at_only_so_often():
    now = [0.0]
    entrance = Entrance(WebOptions(token=TOKEN), lambda: now[0])
    for _ in range(TRIES):
        assert entrance.role_of_token("wrong", "here") is None
    assert entrance.is_closed_to("here")
    assert entrance.role_of_token(TOKEN, "here") is None
    assert entrance.role_of_token(TOKEN, "there") is Role.OPERATE
    now[0] = TRY_SECONDS + 1
    assert entrance.role_of_token(TOKEN, "here") is Role.OPERATE


def test_a_session_ends_and_sessions_are_bounded():
    now = [0.0]
    entrance = Entrance(WebOptions(token=TOKEN), lambda: now[0])
    first = entrance.begin(Role.VIEW)
    assert entrance.role_of_session(first) is Role.VIEW
    assert entrance.role_of_session("another") is entrance.role_of_session(None) is None
    now[0] = SESSION_SECONDS
    assert entrance.role_of_session(first) is None
    sessions = [entrance.begin(Role.VIEW) for _ in range(1001)]
    assert entrance.role_of_session(sessions[0]) is None
    assert entrance.role_of_session(sessions[-1]) is Role.VIEW


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"host": "0.0.0.0"}, "RXJOBS_WEB_TOKEN"),  # noqa: S104 - that is what is refused
        ({"host": "::"}, "RXJOBS_WEB_TOKEN"), ({"host": "10.0.0.1"}, "0.0.1"),
        ({"host": "jobs.example.org"}, "RXJOBS_WEB_TOKEN"), ({"origin": "https://jobs.example.org"}, "RXJOBS_WEB_TOKEN"),
        ({"token": "short"}, "5 characters"), ({"token": TOKEN, "view_token": TOKEN}, "the same"),
        ({"token": TOKEN, "origin": "jobs.example.org"}, "--origin"), ({"trace_url": "http://traces/"}, "trace_id"),
        ({"trace_url": "javascript:{trace_id}"}, "trace-url"),
    ],
)  # fmt: skip
def test_what_would_be_open_to_all_or_is_none_is_refused(options, told):
    with pytest.raises(InvalidOption, match=told):
        WebOptions(**options)
