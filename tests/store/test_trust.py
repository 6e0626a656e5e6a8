"""TLS to the server: what verify-full lets pass and what it refuses, and who is told that nothing is made sure of.

Tried with a front of our own, which is there on every machine, and with a PostgreSQL that has TLS, where Debian's is installed.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import asyncpg
import pytest
import trustme

import rxjobs as rj
from rxjobs.doctor.server import trust
from rxjobs.errors import InvalidDSN, NoDatabase
from rxjobs.store.trust import trust_in
from tests.servers import PrivatePostgres
from tests.tls import Front
from tests.waiting import until

DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parents[1].name))


@pytest.fixture(scope="module")
def ca():
    return trustme.CA()


@pytest.fixture
def files(ca, tmp_path):
    """The CA's certificate, another CA's, and the certificate and key of a client that is `postgres`."""
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.crt")
    client = ca.issue_cert(common_name="postgres")
    client.private_key_pem.write_to_path(tmp_path / "client.key")
    client.cert_chain_pems[0].write_to_path(tmp_path / "client.crt")
    (tmp_path / "client.key").chmod(0o600)
    return tmp_path


def context_of(ca, name="localhost"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture
async def front(ca, dsn):
    async with Front(dsn, context_of(ca)) as front:
        yield front


async def refusal(dsn, kind=NoDatabase):
    app = rj.App(dsn)
    with pytest.raises(kind) as raised:
        await app.migrate()
    with pytest.raises(kind):
        async with app:
            pass
    return str(raised.value)


async def test_everything_that_an_app_connects_for_is_made_sure_of(front, files, caplog):
    dsn = front.dsn(sslmode="verify-full", sslrootcert=files / "ca.crt")
    await rj.App(dsn).migrate()
    app, ran = rj.App(dsn, poll_seconds=30), asyncio.Event()

    @app.job
    def work() -> None:
        app.sync.enqueue(after.new())

    @app.job
    async def after() -> None:
        ran.set()

    async with app.running():
        await until(lambda: app.store.database.listener is not None and app.store.database.listener.is_connected)
        await work.enqueue()
        await asyncio.wait_for(ran.wait(), 20)  # long before the poll: notifications come through
    assert front.taken >= 5  # who looks for a pooler, the lease, the listener, claims and acks
    assert front.plain == 0
    assert "sslmode" not in caplog.text


async def test_a_server_of_another_ca_is_refused_with_advice(front, files):
    message = await refusal(front.dsn(sslmode="verify-full", sslrootcert=files / "other.crt"))
    assert "CERTIFICATE_VERIFY_FAILED" in message
    assert "sslrootcert" in message
    assert front.taken == 0


async def test_a_server_of_another_name_is_refused_with_advice(front, files):
    message = await refusal(front.dsn(host="127.0.0.1", sslmode="verify-full", sslrootcert=files / "ca.crt"))
    assert "certificate is for another name" in message
    assert front.taken == 0


async def test_a_server_without_tls_is_refused_and_so_is_whoever_says_that_it_has_none(dsn, files):
    async with Front(dsn, None) as front:
        message = await refusal(front.dsn(sslmode="verify-full", sslrootcert=files / "ca.crt"))
        assert "ssl in its postgresql.conf" in message
        assert (front.taken, front.plain) == (0, 0)


async def test_a_missing_file_of_the_ca_is_told(front, files, monkeypatch):
    monkeypatch.setenv("HOME", str(files))
    assert "sslrootcert=" in await refusal(front.dsn(sslmode="verify-full"), InvalidDSN)


@pytest.mark.parametrize(
    ("dsn", "environ", "hosts", "sslmode"),
    [
        ("postgresql://ann@db.example/jobs", {}, ("db.example",), "prefer"),
        ("postgresql://ann:p%40ss@db.example:5432/jobs?sslmode=require", {}, ("db.example",), "require"),
        ("postgresql://db.example/jobs", {"PGSSLMODE": "verify-full"}, ("db.example",), "verify-full"),
        ("postgresql://a.example:1,localhost,b.example:2/jobs?sslmode=verify_full", {}, ("a.example", "b.example"), "verify-full"),
        ("postgresql://[2001:db8::1]:5432/jobs", {}, ("2001:db8::1",), "prefer"),
        ("postgresql:///jobs", {"PGHOST": "db.example"}, ("db.example",), "prefer"),
        ("postgresql:///jobs?host=db.example", {}, ("db.example",), "prefer"),
        ("postgresql://[::1]:5432/jobs", {}, (), "prefer"),
        ("postgresql://127.8.9.1/jobs", {}, (), "prefer"),
        ("postgresql://localhost/jobs", {}, (), "prefer"),
        ("postgresql:///jobs?host=/run/postgresql", {}, (), "prefer"),
        ("postgresql:///jobs", {}, (), "prefer"),
        ("postgresql://[::1/jobs", {}, (), "prefer"),
    ],
)
def test_where_a_dsn_leads_and_what_it_asks_for_is_known(dsn, environ, hosts, sslmode):
    found = trust_in(dsn, environ)
    assert (found.hosts, found.sslmode) == (hosts, sslmode)


@pytest.mark.parametrize("sslmode", ["prefer", "require", "verify-ca"])
async def test_each_start_says_that_a_server_elsewhere_is_not_made_sure_of_and_names_the_setting(front, files, caplog, sslmode):
    """The first of two servers is elsewhere, and does not answer."""
    dsn = front.dsn(host="nobody.invalid:1,localhost", sslmode=sslmode, sslrootcert=files / "ca.crt")
    await rj.App(dsn).migrate()
    for _ in range(2):
        caplog.clear()
        async with rj.App(dsn):
            pass
        [told] = caplog.messages
        assert "nobody.invalid" in told
        assert "put sslmode=verify-full" in told
    assert trust(dsn).advice.startswith("put sslmode=verify-full")
    assert trust(dsn.replace(f"sslmode={sslmode}", "sslmode=verify-full")).advice is None


@pytest.mark.skipif(not DEBIAN, reason="no PostgreSQL with TLS is installed here (Debian's package postgresql)")
async def test_a_real_server_that_takes_nothing_but_tls_and_asks_for_a_client_certificate(ca, files, tmp_path):
    async with PrivatePostgres(programs=DEBIAN[-1].parent, fsync="off") as server:
        here = Path(await data_folder(server.dsn))
        certificate = ca.issue_cert("localhost")
        for name, pem in (
            ("server.key", certificate.private_key_pem),
            ("server.crt", certificate.cert_chain_pems[0]),
            ("root.crt", ca.cert_pem),
        ):
            put(here / name, pem.bytes(), server.owner)
        await server.stop()
        settings = "ssl = on\nssl_ca_file = 'root.crt'\n"
        put(here / "postgresql.auto.conf", settings.encode(), server.owner)
        put(here / "pg_hba.conf", b"hostssl all all 127.0.0.1/32 cert\n", server.owner)
        await server.start()
        dsn = server.dsn.replace("127.0.0.1", "localhost")
        verified = f"{dsn}?sslmode=verify-full&sslrootcert={files / 'ca.crt'}"
        assert "sslcert=" in await refusal(verified)
        assert "no encryption" in await refusal(f"{dsn}?sslmode=disable")
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(verified.replace("ca.crt", "other.crt"))
        named = f"{verified}&sslcert={files / 'client.crt'}&sslkey={files / 'client.key'}"
        await rj.App(named).migrate()
        app, ran = rj.App(named, poll_seconds=30), asyncio.Event()
        app.job(name="work")(ran.set)
        async with app.running():
            await until(lambda: app.store.database.listener is not None and app.store.database.listener.is_connected)
            await app.enqueue(app.definition("work").new())
            await asyncio.wait_for(ran.wait(), 20)
            rows = await app.store.database.fetch(
                "SELECT ssl, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'rxjobs'"
            )
        assert len(rows) >= 4
        assert {(row["ssl"], row["client_dn"]) for row in rows} == {(True, rows[0]["client_dn"])}
        assert "CN=postgres" in rows[0]["client_dn"]


async def data_folder(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval("SHOW data_directory"))
    finally:
        await connection.close()


def put(path: Path, content: bytes, owner: os.stat_result) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    os.chown(path, owner.st_uid, owner.st_gid)
