from datetime import UTC, datetime

import msgspec
import pytest

from rxjobs.calls import Call
from rxjobs.errors import InvalidArguments
from rxjobs.executors import remote
from rxjobs.executors.ran import Ran
from rxjobs.failure import Failure, RemoteFailure
from rxjobs.outcome import Retry, Snooze
from rxjobs.secret import Secret
from rxjobs.testing import a_job, conformance_jobs, job_type
from rxjobs.testing.conformance_executor import call_of
from tests.executors import jobs


def hop(function, *args) -> Ran:
    return remote.read_answer(remote.answer(remote.write_request(call_of(function, *args), {}, None)))


def test_an_outcome_of_the_users_own_class_arrives_as_the_one_it_is_made_of():
    assert hop(jobs.later).value == Snooze(30, "of my own")


def test_the_cause_of_a_retry_arrives_as_text():
    outcome = hop(jobs.retry_with_cause).value
    assert outcome == Retry(1, "no luck")
    assert outcome.failure.type == "ValueError"
    assert outcome.exception is None


def test_a_payload_that_does_not_fit_fails_that_job():
    call = call_of(conformance_jobs.add, 1)
    request = remote.write_request(call, {}, None).replace(b'\\"a\\":1', b'\\"a\\":{}')
    ran = remote.read_answer(remote.answer(request))
    assert isinstance(ran.error, RemoteFailure)
    assert ran.error.failure.type == "rxjobs.errors.BadPayload"


@pytest.mark.parametrize(("nested", "at"), [(False, "datetime"), (True, "str")])
def test_a_stages_function_sees_the_arguments_as_their_types_and_secrets_in_any_case(nested, at):
    def log_in(password: Secret[str], tokens: list[Secret[int]], at: datetime) -> None:
        """A job type that another process cannot find: it knows its arguments' types by their JSON alone."""

    definition = job_type(log_in if nested else jobs.log_in)
    payload = definition.new(password="hunter2", tokens=[1, 2], at=datetime.now(UTC)).payload
    job = a_job(definition=definition, payload=payload, args=definition.arguments.load(payload))
    ran = remote.read_answer(remote.answer(remote.write_request(Call(jobs.look_at, job, takes_job=True), {}, None)))
    assert ran.error is None
    seen = ran.value
    assert seen.pop("shown").startswith("{'password': ***, 'tokens': [***, ***], 'at': ")
    assert seen == {"password": "hunter2", "tokens": [1, 2], "at": at}


def test_assigns_that_json_cannot_carry_are_refused_before_they_are_sent():
    call = call_of(conformance_jobs.identify, payload_of=(conformance_jobs.add, 1), assigns={"file": object()})
    with pytest.raises(InvalidArguments, match="the assigns of job"):
        remote.write_request(call, {}, None)


@pytest.mark.parametrize(
    "answer",
    [b"", b"{}", b"[]", b"nonsense", b'{"result":7}', b'{"outcome":{"name":"Anything"}}', b'{"outcome":{"name":"Snooze"}}'],
)
def test_what_is_no_answer_is_refused(answer):
    with pytest.raises((msgspec.MsgspecError, TypeError)):
        remote.read_answer(answer)


def test_what_cannot_be_read_is_answered_as_a_failure():
    assert isinstance(remote.read_answer(remote.answer(b"nonsense")).error, RemoteFailure)


def test_a_failure_is_never_made_into_its_class_again():
    ran = remote.read_answer(msgspec.json.encode(remote.Answer(failure=Failure("os.system", "true"))))
    assert type(ran.error) is RemoteFailure


def test_a_function_that_is_not_there_is_a_failure_that_names_it():
    request = remote.write_request(call_of(conformance_jobs.add, 1), {}, None).replace(b"jobs:add", b"jobs:gone")
    error = remote.read_answer(remote.answer(request)).error
    assert "conformance_jobs:gone" in error.failure.message


def test_decorators_over_a_job_type_lead_to_its_function():
    assert remote.find("tests.executors.jobs:decorated").function is jobs.double.function
