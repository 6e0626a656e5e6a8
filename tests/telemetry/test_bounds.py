"""Whatever users make up, the number of series stays small."""

from __future__ import annotations

from rxjobs.definition import NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.events import (
    BreakerOpened,
    BreakerRejected,
    JobFailed,
    JobsAcked,
    JobsRescued,
    JobStale,
    JobStarted,
    JobStopped,
    QueueFetched,
    QueueStalled,
)
from rxjobs.failure import Failure
from rxjobs.outcome import COMPLETE, Retry
from rxjobs.telemetry import names
from rxjobs.telemetry.metrics import Metrics
from rxjobs.testing.jobs import a_job

EVENTS = 100_000


def test_a_hundred_thousand_made_up_values_make_fewer_than_five_hundred_series(telemetry, reader):
    metrics = Metrics({"work"}, telemetry, queues=lambda: {"mail"})
    for n in range(EVENTS // 10):
        kind, queue = f"kind {n}", f"queue {n}"
        job = a_job(id=n, type=kind, queue=queue, attempt=n % 50, tags=(f"tag {n}",))
        failure = Failure(f"app.Error{n}", f"message {n}")
        for event in (
            JobStarted(job=job, queue_time=n),
            JobStopped(job=job, duration=n, queue_time=n, outcome=COMPLETE),
            JobFailed(job=a_job(id=n, type="work", queue="mail"), duration=n, queue_time=n, outcome=Retry(1), error=failure),
            JobFailed(job=job, duration=n, queue_time=n, outcome=Retry(1), error=failure),
            QueueFetched(queue=queue, requested=5, jobs=[job], trigger="notify", duration=n),
            JobsAcked(queue=queue, jobs=[job], duration=n, error=failure),
            JobStale(job=job),
            JobsRescued(node=f"node {n}", ids=[n], queues={queue: 1}),
            BreakerRejected(job=job),
            BreakerOpened(type=kind, before="closed", after="open"),
        ):
            metrics.hear(event)
        metrics.hear(QueueStalled(queue=queue, seconds=1.0))
        metrics._enqueued([NewJob(type=kind, queue=queue, payload="{}")], [Enqueued(n, "available")], 0.1, "")
        metrics._enqueued([NewJob(type=kind, queue=queue, payload="{}")], None, 0.1, f"Error{n}")
    metrics.observe({(f"queue {n}", state): (1, 1.0) for n in range(1000) for state in names.VALUES[names.STATE]})

    told = {
        (metric.name, frozenset(point.attributes.items()))
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    print(len(told), "series")
    assert 50 < len(told) < 500
    depths = {dict(of)[names.DESTINATION] for name, of in told if name == names.DEPTH.name}
    assert len(depths) == names.QUEUES + 1
    assert names.OTHER in depths


def test_an_apps_own_queues_are_told_by_name_however_many_others_there_were(telemetry, reader):
    metrics = Metrics({"work"}, telemetry, queues=lambda: {"mail"})
    for queue in [*(f"queue {n}" for n in range(100)), "mail"]:
        metrics.hear(JobStopped(job=a_job(type="work", queue=queue), duration=0, queue_time=0, outcome=COMPLETE))
    told = {
        point.attributes[names.DESTINATION]: point.value
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == names.ATTEMPTS.name
        for point in metric.data.data_points
    }
    assert told["mail"] == 1
    assert told[names.OTHER] == 100 - names.QUEUES
