"""How a model version is named everywhere: in routes, events, Triton and on disk."""

import re

from pydantic import BaseModel, ConfigDict, Field

PACKAGE_ID = re.compile(r"[0-9a-f]{64}")
# What two versions have in common whose vectors may be compared (``registry/convert/space.py``).
SPACE_ID = re.compile(r"^([0-9a-f]{12})?$")
ENDPOINT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# A group of Tritons; the chart names objects by it.
POOL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?")
DEFAULT_POOL = "default"


def pool_named(text: str) -> str:
    """A pool's name as a flag has it; raises ``ValueError``."""
    if not POOL_NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is no name of a pool: it has at most 20 lower-case letters, digits and "
            "hyphens, and begins and ends with a letter or digit."
        )
    return text


class ModelRef(BaseModel):
    """One immutable package of one model version.

    ``package`` is the SHA-256 (hex) of the package's manifest, so that two conversions of the same
    version with different settings are two candidates. ``space`` is a copy of the manifest's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(description="MLflow registered model, WORKSPACE/MODEL of several workspaces")
    version: str = Field(description="MLflow version number, as text")
    package: str = Field(pattern=PACKAGE_ID.pattern, description="SHA-256 of its manifest, hex")
    space: str = Field(
        "", pattern=SPACE_ID.pattern, description="of the vectors it makes; empty: none, or unknown"
    )

    @property
    def triton_model(self) -> str:
        """The name under which Triton holds the package: ``<model>-v<version>-<digest start>``."""
        return f"{endpoint_name(self.model)}-v{self.version}-{self.package[:12]}"


def workspace_of(model: str) -> str:
    """The workspace of MLflow that a model's name begins with; empty if it names none.

    >>> workspace_of("team-a/churn"), workspace_of("churn")
    ('team-a', '')
    """
    return model.rpartition("/")[0]


def name_within(model: str) -> str:
    """A model's name in its workspace, as MLflow has it: in neither may be a ``/``."""
    return model.rpartition("/")[2]


def qualify(workspace: str, name: str) -> str:
    """A model's name outside of its workspace; ``workspace`` may be empty."""
    return f"{workspace}/{name}" if workspace else name


def endpoint_name(registered_model: str) -> str:
    """The endpoint name (a DNS label) that a registered model of any name gets by default.

    >>> endpoint_name("Sentiment_Classifier.EN"), endpoint_name("team-a/Churn")
    ('sentiment-classifier-en', 'team-a--churn')

    Of a workspace's model both names can be told apart: without one, no name has ``--``.
    """
    workspace = workspace_of(registered_model)
    if not ENDPOINT_NAME.fullmatch(workspace):  # as MLflow has it no other
        workspace = _slug(workspace)
    name = _slug(name_within(registered_model)) or "model"
    return (f"{workspace}--{name}" if workspace else name)[:63].strip("-")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
