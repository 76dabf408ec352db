"""The controller's sign of life: what gateways go by where nobody may be left to end a rollout.

The controller writes it after passes in which it looked after every endpoint, so that a loop that
hangs is silent too. Gateways look for a *change* of it, by their own clock.
"""

from pydantic import BaseModel, ConfigDict, Field

BEAT_SECONDS = 10.0  # between two signs
LEAST_PATIENCE_SECONDS = 3 * BEAT_SECONDS  # a gateway that misses two of them says nothing yet

# In a folder of endpoints: one of its own, hidden from those who list endpoints.
BEAT_FOLDER = ".controller"


class ControllerBeat(BaseModel):
    """One sign of life."""

    # What a newer controller says beyond this must not make it silent.
    model_config = ConfigDict(frozen=True, extra="ignore")

    instance: str = Field(description="another one with each start of the controller")
    count: int = Field(ge=1, description="grows by one with each sign of an instance")
    at: float = Field(description="unix time of the controller's clock, seconds")
    unattended: tuple[str, ...] = Field(
        (), description="endpoints that the last pass could not look after"
    )
