"""Conversions as Jobs go their whole way, are found again, and leave nothing behind."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conversion_template import BASE, request
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes
from registry_fakes import ref

from contracts.endpoint import Phase
from registry.conversions import job_manifest
from registry.conversions.job_launcher import JobLauncher, JobOptions
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    PublishedPackage,
    result_file,
)

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
NAME = job_manifest.name_of(request())
STEP = ConversionProgress(phase=Phase.VERIFYING, message="compares")
PUBLISHED = PublishedPackage(ref=ref())


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_kubernetes() as server:
        yield server


def assert_clusters_fault(result: PublishedPackage | ConversionFailure, words: str = "") -> None:
    assert isinstance(result, ConversionFailure)
    assert not result.by_version
    assert words in result.reason


class LauncherHarness:
    """A launcher on a cluster whose pods a test moves."""

    def __init__(self, fake: Fake, **options: Any) -> None:
        self.fake = fake
        self.told: list[ConversionProgress] = []
        self.heard = asyncio.Event()
        base = json.loads(json.dumps(BASE))
        self.launcher = JobLauncher(
            fake.client(), JobOptions(NAMESPACE, base, poll_seconds=0.01, **options)
        )

    def start(self) -> "asyncio.Task[PublishedPackage | ConversionFailure]":
        return asyncio.create_task(self.launcher.run(request(), self._tell))

    def _tell(self, progress: ConversionProgress) -> None:
        self.told.append(progress)
        self.heard.set()

    def pod(
        self,
        phase: str,
        log: str = "",
        *,
        deleted_at: str = "",
        containers: tuple[str, ...] = ("convert",),
        **status: Any,
    ) -> None:
        self.fake.world.logs["p"] = log
        metadata = {"name": "p", "labels": {job_manifest.LABEL: NAME}}
        if deleted_at:
            metadata["deletionTimestamp"] = deleted_at
        spec = {"containers": [{"name": name} for name in containers]}
        item = {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}
        self.fake.write(PODS, item)

    def end(self, result: PublishedPackage | ConversionFailure = PUBLISHED) -> None:
        """The container ends, and leaves a result."""
        ended = {"exitCode": 0, "message": result_file(result).decode()}
        statuses = [{"name": "convert", "state": {"terminated": ended}}]
        self.pod("Succeeded", containerStatuses=statuses)

    def lose_the_node(self) -> None:
        """From now on the API server asks a kubelet that is gone for logs."""
        self.fake.refuse(f"GET {PODS}/p/log", 502, "dial tcp: no route to host")

    async def until(self, there: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not there():  # noqa: ASYNC110 - another thread's doing
                await asyncio.sleep(0.005)

    async def made(self) -> None:
        await self.until(lambda: bool(self.fake.all("jobs")))


async def test_a_conversion_is_told_step_by_step_and_its_job_is_removed(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    running = harness.start()
    await harness.made()
    harness.pod("Running", STEP.model_dump_json())
    await harness.until(lambda: STEP in harness.told)
    harness.end()
    assert await running == PUBLISHED
    assert fake.all("jobs") == []


async def test_a_conversion_with_a_sidecar_beside_it_is_told_step_by_step(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    running = harness.start()
    await harness.made()
    harness.pod("Running", STEP.model_dump_json(), containers=("convert", "proxy"))
    await harness.until(lambda: STEP in harness.told)
    harness.end()
    assert await running == PUBLISHED


async def test_a_result_that_is_printed_is_not_believed(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    harness.pod("Succeeded", PUBLISHED.model_dump_json())
    assert_clusters_fault(await harness.start(), "no result")


async def test_a_log_that_is_long_is_read_in_part(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    running = harness.start()
    await harness.made()
    harness.pod("Running", STEP.model_dump_json())
    await harness.until(lambda: STEP in harness.told)
    assert any("limitBytes=" in asked for asked in fake.world.queries)
    harness.end()
    assert await running == PUBLISHED


async def test_a_conversion_that_is_not_wanted_any_more_takes_its_job_along(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    running = harness.start()
    await harness.made()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert fake.all("jobs") == []


async def test_a_new_controller_finds_the_job_that_the_one_before_started(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    job = job_manifest.job(BASE, request(), owner=None, timeout_seconds=9)
    fake.write(JOBS, job)
    harness.end()
    assert await harness.start() == PUBLISHED


async def test_a_pod_that_never_starts_is_given_up_with_the_clusters_words(fake: Fake) -> None:
    harness = LauncherHarness(fake, stuck_seconds=0.5)
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    harness.pod("Pending", containerStatuses=[{"state": {"waiting": waiting}}])
    assert_clusters_fault(await harness.start(), "no such image")
    assert "no such image" in harness.told[0].message


async def test_an_api_server_that_is_away_for_a_while_ends_nothing(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    running = harness.start()
    await harness.made()
    fake.go_away()
    asked = len(fake.world.asked)
    await harness.until(lambda: len(fake.world.asked) > asked + 3)
    fake.come_back()
    harness.end()
    assert await running == PUBLISHED


async def test_a_job_that_is_refused_says_so_and_blames_no_version(fake: Fake) -> None:
    fake.refuse(f"POST {JOBS}", 403, "exceeded quota")
    assert_clusters_fault(await LauncherHarness(fake).start(), "exceeded quota")


async def test_a_job_that_someone_deletes_is_tried_again(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    running = harness.start()
    await harness.made()
    fake.remove(JOBS, NAME)
    assert_clusters_fault(await running)


async def test_a_log_that_may_not_be_read_still_ends(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    fake.refuse(f"GET {PODS}/p/log", 403, "pods/log is forbidden")
    harness.pod("Succeeded")
    assert_clusters_fault(await harness.start())


async def test_a_pod_that_a_lost_node_leaves_behind_ends_as_its_job_says(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    running = harness.start()
    await harness.made()
    harness.lose_the_node()
    harness.pod("Running", deleted_at="2026-01-01T00:00:00Z")
    (job,) = fake.all("jobs")
    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    fake.write(JOBS, {**job, "status": {"conditions": [condition]}})
    assert_clusters_fault(await running, "BackoffLimitExceeded")


async def test_a_pod_that_ended_on_a_lost_node_ends_its_conversion(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    harness.lose_the_node()
    harness.pod("Failed", reason="NodeLost")
    assert_clusters_fault(await harness.start(), "NodeLost")


async def test_a_pod_of_which_nothing_can_be_known_is_given_up_in_the_end(fake: Fake) -> None:
    harness = LauncherHarness(fake, timeout_seconds=0.05, stuck_seconds=0.05)
    harness.lose_the_node()
    harness.pod("Running")
    assert_clusters_fault(await harness.start())
    assert fake.all("jobs") == []


async def test_a_log_that_can_not_be_read_for_a_while_ends_nothing(fake: Fake) -> None:
    harness = LauncherHarness(fake)
    harness.lose_the_node()
    harness.pod("Running")
    running = harness.start()
    log = f"GET {PODS}/p/log"
    await harness.until(lambda: fake.world.asked.count(log) > 2)
    fake.world.refusals.clear()
    harness.end()
    assert await running == PUBLISHED
