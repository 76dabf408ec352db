"""Endpoints with their whole status, of which others follow a summary.

``contracts/endpoint_record.py`` says how a status lies in two objects. For the user of this store
it is one: it reads both, and writes the record before the summary that names it. Both writes are
conditional. A write that is cut short between the two leaves the endpoint as it was.

If the record that a summary names is gone, the summary is all that is left of the status. Its
rollout then has no evidence, and ``rollout/machine.py`` begins it again.
"""

import logging
import secrets
import time
from dataclasses import dataclass

from contracts import endpoint_record
from contracts.endpoint import EndpointStatus, ModelEndpoint
from registry.errors import EndpointConflictError
from registry.stores.endpoints import EndpointStore
from service.cluster.errors import ConflictError
from service.endpoint_records import ForeignRecordError, Records, join_record

log = logging.getLogger(__name__)

_NOBODY = "?"  # is the writer of what no claim was written of
_RETRY_SECONDS = 10.0  # a pass lists several times a second


@dataclass(frozen=True, slots=True)
class _FollowedEndpoint:
    """One endpoint, as it is followed and as it is."""

    summary: ModelEndpoint
    whole: ModelEndpoint


class WholeEndpoints:
    """An ``EndpointStore`` on a store of summaries. Threads may share it.

    ``for_people``: a record that can't be read is told in a note of its endpoint's status. Else
    such an endpoint is unreadable: code that decides must not go by its summary.
    """

    def __init__(
        self, summaries: EndpointStore, records: Records, *, for_people: bool = False
    ) -> None:
        self.unreadable: frozenset[str] = frozenset()
        self._summaries = summaries
        self._records = records
        self._for_people = for_people
        self._known: dict[str, _FollowedEndpoint] = {}
        self._retry_at: dict[str, float] = {}  # a record of another release, by our clock
        self._claims: dict[str, str] = {}  # what this process last wrote as ``status.writer``

    def list(self) -> tuple[ModelEndpoint, ...]:
        """Every endpoint, by name; see the Protocol."""
        summaries = self._summaries.list()
        unreadable, found = set(self._summaries.unreadable), []
        for gone in self._known.keys() - {summary.name for summary in summaries}:
            self._known.pop(gone, None)
            self._claims.pop(gone, None)
        for summary in summaries:
            if time.monotonic() < self._retry_at.get(summary.name, 0.0):
                unreadable.add(summary.name)
                continue
            try:
                found.append(self._whole(summary))
            except OSError as error:
                log.warning("the record of the endpoint %s can't be read: %s", summary.name, error)
                unreadable.add(summary.name)
                if isinstance(error, ForeignRecordError):
                    self._retry_at[summary.name] = time.monotonic() + _RETRY_SECONDS
        self.unreadable = frozenset(unreadable)
        return tuple(found)

    def get(self, name: str) -> ModelEndpoint | None:
        """One endpoint, read now; see the Protocol.

        Raises:
            OSError: its record can't be read.
        """
        summary = self._summaries.get(name)
        return None if summary is None else self._whole(summary)

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        """Writes against the revision that was read; see the Protocol."""
        known = self._at(endpoint)
        if known is not None and known.whole.status == endpoint.status:
            return self._learn(self._read_stored(endpoint, known.summary.status), endpoint.status)
        status = endpoint.status
        summary = endpoint_record.summary(status)
        if summary == status:
            return self._learn(self._read_stored(endpoint, summary), status)
        if known is None:  # a record belongs to an endpoint that is there
            made = endpoint.model_copy(update={"status": EndpointStatus()})
            self._learn(self._read_stored(made, made.status), made.status)
            metadata = self._known[endpoint.name].summary.metadata
            return self.put(endpoint.model_copy(update={"metadata": metadata}))
        before, text = known.summary.status.record, endpoint_record.text_of(status)
        ref = endpoint_record.ref_to(text, before)
        if self._claims.get(endpoint.name, _NOBODY) != known.summary.status.writer:
            endpoint = self._claim(endpoint, known)
        claim = self._claims[endpoint.name]
        if ref != before:
            try:
                self._records.write(endpoint, ref.slot, text)
            except ConflictError as error:
                del self._claims[endpoint.name]
                raise EndpointConflictError(f"endpoint {endpoint.name}: {error}") from error
        summary = summary.model_copy(update={"record": ref, "writer": claim})
        del self._claims[endpoint.name]  # until this write is known to be done
        stored = self._read_stored(endpoint, summary)
        self._claims[endpoint.name] = claim
        return self._learn(stored, status)

    def delete(self, name: str) -> None:
        """Removes an endpoint and its records."""
        self._summaries.delete(name)
        self._known.pop(name, None)
        self._records.forget(name)

    def tell_refused(self) -> None:
        """See the Protocol."""
        self._summaries.tell_refused()

    def _at(self, endpoint: ModelEndpoint) -> _FollowedEndpoint | None:
        """What is stored, at just the revision that was read; None if none was.

        Raises:
            EndpointConflictError: someone else wrote it in the meantime.
        """
        revision = endpoint.metadata.revision
        if not revision:
            return None
        known = self._known.get(endpoint.name)
        if known is None or known.summary.metadata.revision != revision:
            found = self.get(endpoint.name)
            stored = found.metadata.revision if found else "none"
            if stored != revision:
                raise EndpointConflictError(
                    f"endpoint {endpoint.name} is at revision {stored}, not {revision}"
                )
            known = self._known[endpoint.name]
        return known

    def _claim(self, endpoint: ModelEndpoint, known: _FollowedEndpoint) -> ModelEndpoint:
        """Makes this process the writer of an endpoint's records; it is of another revision then.

        What another program has yet to name in the summary is a conflict from now on, and so is an
        earlier write of ours whose answer was lost. What they have yet to write to a record is one
        too, or makes ours one: revisions were looked at before.
        """
        self._records.look(known.summary)
        claim = secrets.token_hex(4)
        status = known.summary.status.model_copy(update={"writer": claim})
        stored = self._read_stored(known.summary, status)
        self._learn(stored, known.whole.status)
        self._claims[endpoint.name] = claim
        metadata = endpoint.metadata.model_copy(update={"revision": stored.metadata.revision})
        return endpoint.model_copy(update={"metadata": metadata})

    def _read_stored(self, endpoint: ModelEndpoint, summary: EndpointStatus) -> ModelEndpoint:
        return self._summaries.put(endpoint.model_copy(update={"status": summary}))

    def _learn(self, summary: ModelEndpoint, status: EndpointStatus) -> ModelEndpoint:
        """The endpoint as it was stored, with its whole status."""
        status = status.model_copy(update={"outdated": summary.status.outdated})
        stored = summary.model_copy(update={"status": status})
        self._known[summary.name] = _FollowedEndpoint(summary, stored)
        return stored

    def _whole(self, summary: ModelEndpoint) -> ModelEndpoint:
        """The endpoint of a summary: the same object while that is the same."""
        known = self._known.get(summary.name)
        if known is not None and known.summary is summary:
            return known.whole
        named = summary.status.record
        if known is not None and named is not None and known.summary.status.record == named:
            return self._learn(summary, known.whole.status)
        found = self._read(summary)
        self._known[summary.name] = _FollowedEndpoint(summary, found)
        return found

    def _read(self, summary: ModelEndpoint) -> ModelEndpoint:
        try:
            found = join_record(summary, self._records)
        except OSError as error:
            if not self._for_people:
                raise
            return _note(summary, f"this is a summary: its record can't be read: {error}")
        if found is not None:
            return found
        if self._for_people:
            return _note(summary, "this is a summary: its record is not there")
        log.error(
            "%s: the record that its status names is gone: a rollout begins again, and older "
            "history is lost",
            summary.name,
        )
        return _note(summary, "")


def _note(summary: ModelEndpoint, note: str) -> ModelEndpoint:
    """The summary as all that there is, with a note if there is something to say."""
    notes = (*summary.status.notes, *((note,) if note else ()))
    status = summary.status.model_copy(update={"record": None, "notes": notes})
    return summary.model_copy(update={"status": status})
