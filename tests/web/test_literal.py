"""Whatever stands in a database is shown as it is: no text of a job becomes a part of a page."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import rxjobs as rj
from rxjobs.cli.escaping import escape
from tests.web.conftest import dead_letter, job

PAYLOADS = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "\"><script>alert(2)</script>",
    "' onmouseover='alert(3)", '" onfocus="alert(4)" autofocus="', "</td></table><script>alert(5)</script>",
    "</script><script>alert(6)</script>", "javascript:alert(7)", "</title><h1>owned", "<!--", "]]>", "{{ 7*7 }}{% raw %}",
    "<iframe srcdoc='<script>alert(8)</script>'>", "<a href=javascript:alert(9)>x</a>", "<style>*{display:none}</style>",
    "&lt;script&gt;", "<base href=//evil.example>", "<meta http-equiv=refresh content=0>", "\x1b]0;owned\x07", "\u202eevil\u2066",
    "a\nb\r\nset-cookie: x=1", "<form action=//evil.example><button>", "\ud7ff\U000e0001\u200b",
]  # fmt: skip
TAGS = {
    "html", "head", "meta", "title", "link", "script", "body", "header", "nav", "strong", "a", "span", "button", "output", "main",
    "div", "p", "h2", "h3", "table", "thead", "tbody", "tr", "th", "td", "meter", "form", "label", "input", "select", "option",
    "dl", "dt", "dd", "code", "section", "pre",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "name", "content", "rel", "href", "src", "defer", "aria-current", "class", "id", "role", "data-seconds",
    "min", "max", "value", "data-post", "data-body", "data-confirm", "data-then", "colspan", "method", "action", "maxlength",
    "placeholder", "type", "step", "data-number", "selected", "target",
}  # fmt: skip


class Seen(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.attributes, self.links, self.scripts, self.bodies = "", set(), set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        told = dict(attrs)
        self.links += [told[name] for name in ("href", "action", "data-post") if name in told]
        self.bodies += [told["data-body"]] if "data-body" in told else []
        if tag == "script":
            self.scripts.append(told.get("src"))

    def handle_data(self, data):
        self.text += data


async def test_payloads_in_every_field_are_shown_literally(dashboard, connection, migrated):
    ids = []
    for text in PAYLOADS:
        error = {"attempt": text, "type": text, "message": text, "traceback": text, "node": text, "at": text, "trace_id": text}
        plain = text.replace("\x00", "")
        ids.append(
            await dead_letter(
                connection, type=plain, queue=plain, args=json.dumps({text: text}), errors=json.dumps([error]),
                forensics=json.dumps({text: text}), meta=json.dumps({text: text}), tag=plain,
            )
        )  # fmt: skip
        await job(connection, plain, plain, json.dumps(text))
        await connection.execute("INSERT INTO rxjobs.breakers (type, state) VALUES ($1, 'open')", plain)
        stage = {"name": text, "limit": 1}
        status = {"host": text, "rxjobs": text, "pipelines": [{"name": text, "queues": [text], "stages": [stage]}]}
        await connection.execute(
            "INSERT INTO rxjobs.nodes (id, label, pid, expires_at, status) "
            "VALUES (gen_random_uuid(), $1, 1, now() + interval '1 hour', $2)",
            plain, json.dumps(status),
        )  # fmt: skip
        await connection.execute("INSERT INTO rxjobs.queues (queue, node, paused_at) VALUES ($1, $1, now())", plain)
    async with rj.App(migrated) as app:

        @app.job(name="digest")
        async def digest() -> None: ...

        await app.cron.add("daily", "0 8 * * *", digest.new())
    await connection.execute(
        "UPDATE rxjobs.cron_entries SET name = $1, "
        "job = (job::jsonb || jsonb_build_object('type', $1::text, 'queue', $1::text))::json",
        PAYLOADS[0],
    )
    web = await dashboard(shows_args=True, trace_url="http://traces.example/{trace_id}")
    for page in ["/", "/jobs?limit=200", "/dead", "/cron", "/breakers", *(f"/jobs/{id_}" for id_ in ids)]:
        answer = await web.get(page)
        assert answer.status_code == 200, page
        seen = Seen(answer.text)
        assert seen.tags <= TAGS, page
        assert seen.attributes <= ATTRIBUTES, page
        assert seen.scripts == ["/static/rxjobs.js"], page
        assert all(link.startswith(("/", "?")) and not link.startswith("//") for link in seen.links), page
        assert not {"\x1b", "\x07", "\u202e", "\u2066", "\u200b"} & set(answer.text), page
        assert all(json.loads(body).keys() <= {"do", "queue", "type", "name", "ids"} for body in seen.bodies)
        if page in ("/", "/jobs?limit=200", "/dead", "/breakers"):
            assert [text for text in PAYLOADS if escape(text) not in seen.text] == [], page
    for query in PAYLOADS:
        answer = await web.get("/jobs", params={"queue": query, "type": query})
        seen = Seen(answer.text)
        assert seen.tags <= TAGS
        assert seen.attributes <= ATTRIBUTES
        assert seen.scripts == ["/static/rxjobs.js"]
