"""What is enqueued, asserted, and what the message says when it is not."""

from __future__ import annotations

from uuid import UUID

import pytest

import rxjobs as rj
from rxjobs.testing import assert_enqueued, drain_sync, refute_enqueued

WHO = UUID(int=7)


@pytest.fixture
def mail(app):
    @app.job(name="shop.mail", queue="mail")
    def mail(user_id: int, who: UUID = WHO) -> None: ...

    return mail


def test_a_job_is_found_by_type_and_some_of_its_arguments(app, mail):
    row = app.sync.enqueue(mail.options(delay=60).new(user_id=7))
    assert assert_enqueued(mail).id == row.id
    assert assert_enqueued("shop.mail", args={"user_id": 7}, queue="mail", app=app).args == {"user_id": 7}
    assert_enqueued(mail, args={"who": WHO}, count=1)  # its default, and as it would be stored
    refute_enqueued(mail, args={"user_id": 8})
    refute_enqueued(mail, queue="other")


async def test_it_is_the_same_in_a_coroutine(app, mail):
    async with app:
        refute_enqueued(mail)
        await mail.enqueue(user_id=7)
        assert_enqueued(mail, args={"user_id": 7})


def test_the_message_lists_what_is_enqueued_and_what_the_nearest_has_otherwise(app, mail):
    @app.job(name="other")
    def other(user_id: int) -> None: ...

    app.sync.enqueue_many([mail.new(user_id=8), other.new(user_id=9)])
    with pytest.raises(AssertionError) as raised:
        assert_enqueued(mail, args={"user_id": 7}, queue="letters")
    assert str(raised.value) == (
        "no job is enqueued as shop.mail with {'user_id': 7} in queue letters\n"
        "the nearest is job 1, but its queue is mail, not letters and its user_id is 8, not 7\n"
        "enqueued are, the newest first:\n"
        '  job 2: other {"user_id":9} in queue default, available\n'
        '  job 1: shop.mail {"user_id":8} in queue mail, available'
    )
    with pytest.raises(AssertionError, match=r"the nearest is job 2, but its type is other"):
        assert_enqueued("shop.male", args={"user_id": 9}, app=app)
    with pytest.raises(AssertionError, match=r"not 2 but 1 jobs are enqueued as shop\.mail\n"):
        assert_enqueued(mail, count=2)
    with pytest.raises(AssertionError, match=r"a job is enqueued as shop\.mail\n.*\n  job 1: shop\.mail"):
        refute_enqueued(mail)


def test_one_that_has_ended_is_not_enqueued_and_that_is_said(app, mail):
    app.sync.enqueue(mail.new(user_id=7))
    assert drain_sync(app) == {"complete": 1}
    refute_enqueued(mail)
    with pytest.raises(AssertionError, match=r"the nearest is job 1, but it is completed already"):
        assert_enqueued(mail)


def test_nothing_at_all_is_said_too(app, mail):
    with pytest.raises(AssertionError, match=r"no job is enqueued as shop\.mail\nnothing is enqueued"):
        assert_enqueued(mail)


def test_a_name_without_an_app_is_refused():
    with pytest.raises(rj.InvalidOption, match="give app=, or the job type itself, or use the fixture rxjobs_app"):
        assert_enqueued("shop.mail")
