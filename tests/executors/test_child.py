import asyncio
import socket

import pytest

from rxjobs.calls import Call, UnstorableResult
from rxjobs.executors.child import is_child
from rxjobs.executors.in_processes import in_processes
from rxjobs.failure import RemoteFailure
from rxjobs.job import Job
from rxjobs.testing import conformance_jobs
from rxjobs.testing.conformance_executor import call_of, caught
from tests.executors import jobs


@pytest.fixture(scope="module")
def executor():
    """One for all: an executor goes from loop to loop."""
    executor = in_processes(1)
    yield executor
    asyncio.run(executor.close())


async def test_a_job_that_forks_and_returns_twice_answers_once(executor):
    ran = {await executor.run(call_of(jobs.fork_and_return)) for _ in range(3)}
    assert len(ran) == 1
    assert ran == {await executor.run(call_of(jobs.pid))}


async def test_a_child_inherits_no_socket_of_its_parent(executor):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.set_inheritable(True)
        assert await executor.run(call_of(jobs.ports)) == []


async def test_a_child_knows_that_it_is_one(executor):
    assert not is_child()
    assert await executor.run(call_of(is_child))


async def test_a_program_that_a_job_starts_can_be_interrupted(executor):
    assert await executor.run(call_of(jobs.handles_of_a_program)) == "True True"


async def test_a_failure_keeps_its_name_message_and_traceback(executor):
    error = await caught(executor, call_of(conformance_jobs.fail, "ValueError"))
    assert isinstance(error, RemoteFailure)
    assert error.failure.type == "ValueError"
    assert error.failure.message == "wrong"
    assert "in fail" in error.failure.traceback


async def test_a_result_without_a_json_form_is_no_failure(executor):
    for function in (jobs.unstorable, jobs.complete_with_unstorable):
        result = await executor.run(call_of(function))
        assert isinstance(result, UnstorableResult)
        assert "the result" in result.reason
    assert await executor.run(call_of(jobs.a_thousand_bits)) == 2**1000


async def test_a_job_type_stands_for_its_function(executor):
    payload = jobs.double.new(21).payload
    job = Job(id=1, type="double", payload=payload, args={"number": 21}, definition=jobs.double)
    assert await executor.run(Call(jobs.double.function, job)) == 42
