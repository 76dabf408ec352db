"""What can go wrong with the Kubernetes API, as a tree.

All of it is an ``OSError``, as what a folder that is away raises: a reader of endpoints goes on
with the last ones, wherever they lie.
"""

import json


class KubernetesError(OSError):
    """The root; its message is a sentence for readers of the log."""


class AccessError(KubernetesError):
    """This process can't know how to reach an API server, or how to sign in."""


class ApiUnavailableError(KubernetesError):
    """The API server does not answer, not in time, or can't serve now."""


class UnreadableEventError(ApiUnavailableError):
    """A watch told what can't be read: all must be listed again."""


class RevisionAheadError(ApiUnavailableError):
    """The server's cache has not come as far as the revision asked for, and may never."""


class ApiRefusedError(KubernetesError):
    """The API server answered that it will not; ``status`` is HTTP's."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class MissingError(ApiRefusedError):
    """There is no such object (404)."""


class ConflictError(ApiRefusedError):
    """It exists already, or was written since it was read (409)."""


class ExpiredError(ApiRefusedError):
    """The revision asked for is too old to be known (410): all must be listed again."""


class ObjectTooLargeError(ApiRefusedError):
    """The object is larger than what is stored of one."""


_BY_STATUS: dict[int, type[ApiRefusedError]] = {
    404: MissingError,
    409: ConflictError,
    410: ExpiredError,
    413: ObjectTooLargeError,
}
_OF_OBJECTS = frozenset({404, 409, 410})
# The API server's own, of a path that it does not serve; other servers say so of any path.
_NO_SUCH_API = "404 page not found"
# What etcd and its client say of an object; the API server answers with 500.
_TOO_LARGE = ("request is too large", "message larger than max")
_AHEAD = "too large resource version"  # with 504, and with words around it that differ
_NOT_NOW = frozenset({429, 500, 502, 503, 504})


def of_status(status: int, sentence: str) -> KubernetesError:
    """The error that an HTTP status stands for, or the server's words if it says more."""
    if any(words in sentence for words in _TOO_LARGE):
        return ObjectTooLargeError(sentence, status)
    if status in _NOT_NOW and _AHEAD in sentence.lower():
        return RevisionAheadError(sentence)
    if status in _NOT_NOW:
        return ApiUnavailableError(sentence)
    return _BY_STATUS.get(status, ApiRefusedError)(sentence, status)


def of_answer(status: int, what: str, body: str) -> KubernetesError:
    """The error of an answer, with the server's own words, of a Status object if it sent one.

    That an object is not there, or was written meanwhile, is believed in such words only: a proxy
    without a backend answers 404 too.
    """
    try:
        found = json.loads(body)
        own, sentence = found["kind"] == "Status", str(found["message"])
    except (ValueError, KeyError, TypeError):
        own, sentence = False, f"{status} {body[:200]}".strip()
    if own or status not in _OF_OBJECTS:
        return of_status(status, f"{what}: {sentence}")
    if body.strip() == _NO_SUCH_API:
        return ApiRefusedError(f"{what}: {sentence}", status)
    return ApiUnavailableError(f"{what}: something before the API server says {sentence}")
