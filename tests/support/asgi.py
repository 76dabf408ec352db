"""An HTTP client of the application itself, without a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property

import httpx
from front_fakes import FakeKeys, FakeMetrics, FakePredictor, FakeRecorder, front_of

from gateway.app import Application, create_app
from gateway.http.limits import HttpLimits
from gateway.inference.feedback import FeedbackDesk
from gateway.inference.receipts import Receipts


@dataclass
class Behind:
    """The application and what is behind it."""

    predictor: FakePredictor = field(default_factory=FakePredictor.with_endpoints)
    keys: FakeKeys = field(default_factory=FakeKeys)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    metrics: FakeMetrics = field(default_factory=FakeMetrics)
    limits: HttpLimits = field(default_factory=HttpLimits)
    receipts: Receipts | None = field(default_factory=lambda: Receipts([b"k" * 32], 86400.0))

    @cached_property
    def app(self) -> Application:
        """The application; made once, with its documentation."""
        desk = None if self.receipts is None else FeedbackDesk(self.receipts, self.recorder)
        front = front_of(
            self.predictor,
            keys=self.keys,
            recorder=self.recorder,
            metrics=self.metrics,
        )
        return create_app(front, self.limits, desk)


@asynccontextmanager
async def client_of(behind: Behind) -> AsyncIterator[httpx.AsyncClient]:
    """Asks the application directly."""
    transport = httpx.ASGITransport(behind.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client
