"""The controller's heartbeat, by which gateways know that somebody can end a rollout.

The controller writes it after each pass in which it reconciled every endpoint, so that a loop that
hangs gives no heartbeat either. Gateways look for a *change* of it, by their own clock.
"""

from pydantic import BaseModel, ConfigDict, Field

BEAT_SECONDS = 10.0  # between two heartbeats
LEAST_TIMEOUT_SECONDS = 3 * BEAT_SECONDS  # a gateway that misses two of them does nothing yet

# In a folder of endpoints: one of its own, hidden from those who list endpoints.
BEAT_FOLDER = ".controller"


class ControllerBeat(BaseModel):
    """One heartbeat."""

    # Fields that a newer controller adds must not make its heartbeat unreadable.
    model_config = ConfigDict(frozen=True, extra="ignore")

    instance: str = Field(description="another one with each start of the controller")
    count: int = Field(ge=1, description="grows by one with each heartbeat of an instance")
    at: float = Field(description="unix time of the controller's clock, seconds")
    release: str = Field("", description="its mark, by which another's controller is known")
    unattended: tuple[str, ...] = Field(
        (), description="endpoints that the last pass could not reconcile"
    )
