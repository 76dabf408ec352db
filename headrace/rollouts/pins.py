"""Pins an endpoint to a version, and goes back to what it followed before. Pure.

What was followed is kept in an annotation, for the spec has no room for it.
"""

from pydantic import TypeAdapter, ValidationError

from contracts.endpoint import AliasVersion, FollowVersion, ModelEndpoint, PinnedVersion
from headrace.errors import RefusedError

BEFORE = "headrace.dev/before-pin"
_Followed = FollowVersion | AliasVersion
_followed: TypeAdapter[_Followed] = TypeAdapter(_Followed)


def pinned(endpoint: ModelEndpoint, version: str) -> ModelEndpoint:
    """The endpoint with its spec on one version.

    Raises:
        RefusedError: ``version`` is no version's number, or it is pinned there already.
    """
    if not version.isascii() or not version.isdigit():
        raise RefusedError(f"{version} is no version: MLflow counts them 1, 2, 3.")
    now = endpoint.spec.version
    if isinstance(now, PinnedVersion):
        if now.pin == version:
            raise RefusedError(f"The endpoint {endpoint.name} is pinned to version {version}.")
        notes = endpoint.metadata.annotations
    else:
        followed = _followed.dump_json(now).decode()
        notes = {**endpoint.metadata.annotations, BEFORE: followed}
    return _with(endpoint, PinnedVersion(pin=version), notes)


def unpinned(endpoint: ModelEndpoint) -> ModelEndpoint:
    """The endpoint following what it followed before it was pinned, else the latest version.

    Raises:
        RefusedError: it is not pinned.
    """
    if not isinstance(endpoint.spec.version, PinnedVersion):
        raise RefusedError(f"The endpoint {endpoint.name} is not pinned.")
    notes = dict(endpoint.metadata.annotations)
    try:
        version = _followed.validate_json(notes.pop(BEFORE, "{}"))
    except ValidationError:
        version = FollowVersion()
    return _with(endpoint, version, notes)


def _with(
    endpoint: ModelEndpoint,
    version: FollowVersion | AliasVersion | PinnedVersion,
    notes: dict[str, str],
) -> ModelEndpoint:
    return endpoint.model_copy(
        update={
            "metadata": endpoint.metadata.model_copy(update={"annotations": notes}),
            "spec": endpoint.spec.model_copy(update={"version": version}),
        }
    )
