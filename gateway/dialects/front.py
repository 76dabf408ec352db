"""What every dialect uses: the admission controller, the pipeline, the endpoints and metrics.

A dialect asks ``Front.admission`` whether a request comes in, parses its body to a ``Query``, has
``Front.predict`` answer it, and renders the answer.
"""

from dataclasses import dataclass
from typing import Protocol

from gateway.admission.controller import AdmissionController
from gateway.calls import Answer, Call, Catalogue, EndpointView, Predictor, Query
from gateway.errors import InvalidInputError
from gateway.request_context import RequestContext


class RequestMetrics(Protocol):
    """Counts requests over HTTP and gRPC, and renders all metrics."""

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        """One request answered: ``status`` is HTTP's, gRPC's calls are mapped to it."""
        ...

    def render(self) -> bytes:
        """All metrics of the process, in Prometheus's text format."""
        ...


@dataclass(frozen=True, slots=True)
class Front:
    """The parts of the gateway that dialects use; one for all dialects of a process."""

    endpoints: Catalogue
    admission: AdmissionController
    pipeline: Predictor
    metrics: RequestMetrics

    async def predict(
        self, context: RequestContext, view: EndpointView, caller: str | None, query: Query
    ) -> Answer:
        """Makes a ``Call`` of the texts and has the pipeline answer it.

        Its deadline is the caller's, and at most the endpoint's time limit away.

        Args:
            context: the request, admitted by ``AdmissionController.enter``.
            view: the endpoint, as ``enter`` has returned it.
            caller: the caller's name, as ``enter`` has returned it.
            query: the texts.

        Raises:
            InvalidInputError: no text at all.
            GatewayError: whatever the pipeline refuses or fails with.
        """
        if not query.texts:
            raise InvalidInputError(
                "No text was sent: an empty string is a text, an empty list none."
            )
        call = Call(
            endpoint=view.name,
            texts=query.texts,
            pairs=query.pairs,
            request_id=context.request_id,
            received=context.received,
            started=context.started,
            deadline=context.deadline(view.timeout_seconds),
            sticky_key=context.sticky_key,
            forced_version=context.forced_version,
            caller=caller,
            trace_parent=context.trace_parent,
        )
        context.handed_over = True
        return await self.pipeline.predict(call)
