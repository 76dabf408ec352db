"""Runs a conversion as a Job, and reads how it goes from its pod.

The ``ConversionLauncher`` of a controller in a cluster. A Job's name follows from what it converts:
a controller that was killed and comes back finds the Job that it had started and goes on watching.
A Job that nobody wants any more is deleted with its pod; one that could not be ends by its own
deadline and is collected. It never decides whether to convert.
"""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from contracts.endpoint import Phase
from registry.conversions import job_manifest
from registry.conversions.job_outcome import ConversionLimits, JobState, PendingPod, state_of
from registry.conversions.launcher import OnProgress
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    ConversionRequest,
    PublishedPackage,
)
from service.cluster.client import ClusterClient
from service.cluster.collection import Collection, Object, read_list
from service.cluster.errors import (
    ApiRefusedError,
    ApiUnavailableError,
    ConflictError,
    KubernetesError,
    MissingError,
)
from service.cluster.leases import Owner

log = logging.getLogger(__name__)

STUCK_SECONDS = 300.0
_LOG_LINES = 200
_LOG_BYTES = 1 << 20  # a line may have any length
_ENDED = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How conversions run. ``stuck_seconds``: a pod that has not started by then is given up.

    So is one that has not ended after ``timeout_seconds`` more, whatever its node says of it.
    """

    namespace: str
    template: Object
    owner: Owner | None = None
    timeout_seconds: float = 1800.0
    stuck_seconds: float = STUCK_SECONDS
    poll_seconds: float = 1.0


class JobLauncher:
    """Conversions as Jobs of one namespace."""

    def __init__(self, client: ClusterClient, options: JobOptions) -> None:
        self._client = client
        self._core = client.core  # here, for its import is large
        self._options = options
        self._jobs = Collection("batch/v1", "jobs", options.namespace)
        memory = job_manifest.memory_limit(options.template)
        container = job_manifest.container_name(options.template)
        self._limits = ConversionLimits(memory, options.timeout_seconds, container)
        # A pod with sidecars has a log for each container, and gives none without a name.
        self._container = {"container": container} if container else {}

    async def run(
        self,
        request: ConversionRequest,
        progress: OnProgress,
        *,
        python_path: tuple[Path, ...] = (),
    ) -> PublishedPackage | ConversionFailure:
        """Runs a conversion to its end; see the Protocol."""
        del python_path  # the image holds all that a conversion needs
        name = job_manifest.name_of(request)
        try:
            await asyncio.to_thread(self._begin, request)
            return await self._watch(name, progress)
        except ApiRefusedError as error:
            return ConversionFailure(reason=f"its Job is refused: {error}", by_version=False)
        finally:
            # Shielded: being cancelled once more must not leave the Job behind.
            await asyncio.shield(asyncio.to_thread(self._remove, name))

    def _begin(self, request: ConversionRequest) -> None:
        """Makes the Job, or finds that of a controller that was killed."""
        options = self._options
        made = job_manifest.job(
            options.template, request, owner=options.owner, timeout_seconds=options.timeout_seconds
        )
        try:
            self._client.create(self._jobs, made)
        except ConflictError:
            log.info("the Job %s is there already, and is watched", made["metadata"]["name"])

    async def _watch(self, name: str, progress: OnProgress) -> PublishedPackage | ConversionFailure:
        loop = asyncio.get_running_loop()
        options = self._options
        began = loop.time()
        waits_since: float | None = began
        reported: ConversionProgress | None = None
        while True:
            seen = await asyncio.to_thread(self._look, name)
            if isinstance(seen, PublishedPackage | ConversionFailure):
                return seen
            if isinstance(seen, PendingPod):
                waits_since = loop.time() if waits_since is None else waits_since
                if loop.time() - waits_since >= options.stuck_seconds:
                    reason = f"its conversion could not start in time: {seen.reason}"
                    return ConversionFailure(reason=reason, by_version=False)
                seen = ConversionProgress(phase=Phase.CONVERTING, message=seen.reason)
            elif seen is not None:
                waits_since = None
            if seen is not None and seen != reported:
                progress(seen)
                reported = seen
            # The pod's own deadline is its node's to keep, which may be lost.
            if loop.time() - began >= options.stuck_seconds + options.timeout_seconds:
                reason = "its conversion is given up: its Job did not end in time"
                return ConversionFailure(reason=reason, by_version=False)
            await asyncio.sleep(options.poll_seconds)

    def _look(self, name: str) -> JobState | None:
        """How the conversion is now; None if that can't be known."""
        try:
            job = self._client.get(self._jobs, name)
            pod = self._pod(name)
            return state_of(job, pod, self._log(pod), self._limits)
        except MissingError:
            return ConversionFailure(reason="its Job was deleted by someone else", by_version=False)
        except ApiUnavailableError as error:
            log.info("the Job %s can't be looked at now: %s", name, error)
            return None
        except KubernetesError as error:
            return ConversionFailure(reason=f"its Job can't be watched: {error}", by_version=False)

    def _pod(self, name: str) -> Object | None:
        answer = self._client.ask(
            self._core.list_namespaced_pod,
            self._options.namespace,
            label_selector=f"{job_manifest.LABEL}={name}",
        )
        pods, _ = read_list(answer, f"the pods of {name}")
        return max(pods, key=_creation_time, default=None)

    def _log(self, pod: Object | None) -> str:
        """The end of the log of what converts in a pod; empty if it has none."""
        phase = ((pod or {}).get("status") or {}).get("phase")
        if pod is None or phase in {None, "Pending"}:
            return ""
        try:
            return self._client.text(
                self._core.read_namespaced_pod_log,
                pod["metadata"]["name"],
                self._options.namespace,
                **self._container,
                tail_lines=_LOG_LINES,
                limit_bytes=_LOG_BYTES,
            )
        except ApiRefusedError as error:
            log.info("a conversion's log can't be read: %s", error)
            return ""
        except ApiUnavailableError as error:
            # The API server has just answered for the pod: it is the pod's node that does not.
            if phase not in _ENDED and not pod["metadata"].get("deletionTimestamp"):
                raise
            log.info("the node of a conversion that ended does not give its log: %s", error)
            return ""

    def _remove(self, name: str) -> None:
        try:
            self._client.delete(self._jobs, name, propagation_policy="Background")
        except MissingError:
            return
        except KubernetesError as error:
            log.warning("the Job %s is left to its own deadline: %s", name, error)


def _creation_time(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp", ""))
