"""Reads JSON bodies whose elements were counted first: what one becomes is bounded by its endpoint.

A request makes at most ``GROWTH`` times the bytes of its body in memory, and ``FREE_BYTES``: a test
holds every dialect to it. Small bodies are not looked at twice.
"""

from typing import Generic, NamedTuple, TypeVar

import msgspec

from gateway.calls import EndpointView
from gateway.errors import TooLargeError
from gateway.http.elements import elements, most_elements
from gateway.http.large_work import INLINE_BYTES
from gateway.http.messages import decode

T = TypeVar("T")

GROWTH = 16
FREE_BYTES = 16 * 1024 * 1024

# Strings, arrays and objects that a body may have: of a text, its fields included, and of all that
# goes with texts. Each takes up to 240 bytes.
_OF_A_TEXT = 16
_BESIDE_TEXTS = 4096
_LEAST_TEXTS = 2048
# Of tables: of the tensor of a feature, and of its value in a row.
_OF_A_FEATURE = 16
_OF_A_VALUE = 2
# As many as OpenAI's API takes in a request. A parser makes the numbers of an array in one step, in
# which no other thread runs: some 10 ms for this many.
MOST_IDS = 300_000


class TextsOrIdsBody(NamedTuple, Generic[T]):
    """A body without its texts, and these, or the token ids of each."""

    body: T
    texts: list[str]
    ids: list[list[int]]

    @property
    def number(self) -> int:
        """Of texts, or of lists of ids."""
        return max(len(self.texts), len(self.ids))


def decode_counted(
    decoder: msgspec.json.Decoder[T], view: EndpointView, body: bytes, *, most_ids: int = 0
) -> T:
    """The struct in a body. Of a large one it is work for ``Front.read``.

    Args:
        decoder: of the struct.
        view: of the endpoint.
        body: JSON.
        most_ids: token ids that such a body may have.

    Raises:
        TooLargeError: it has more elements than any request of the endpoint.
        GatewayError: see ``gateway.http.messages.decode``.
    """
    if len(body) > INLINE_BYTES:
        most = _most_things(view)
        most_commas = most + most_ids + _most_values(view)
        quick = most_elements(body)
        if quick.things > most or quick.commas > most_commas:
            _check_elements(body, view, most, most_commas, most_ids)
    return decode(decoder, body)


def _check_elements(
    body: bytes, view: EndpointView, most: int, most_commas: int, most_ids: int
) -> None:
    """Counts them exactly; raises ``TooLargeError``."""
    found = elements(body, most, most_commas)
    if found.things > most:
        raise TooLargeError(
            f"The body has more than {most} strings, arrays and objects, the most that a "
            f"request of {view.max_texts} texts or rows may have: send fewer a request."
        )
    if found.commas > most_commas:
        what = f"{most_ids} token ids" if most_ids else f"{view.max_texts} texts or rows"
        raise TooLargeError(
            f"The body has more than {most_commas} values, which a request of {what} never has: "
            "send fewer a request."
        )


def check_texts(count: int, view: EndpointView) -> None:
    """Refuses texts or rows by their number, before they are made; raises ``TooLargeError``."""
    if count > view.max_texts:
        raise TooLargeError(
            f"The request has {count} texts; this endpoint takes {view.max_texts} at once."
        )


def check_values(body: bytes, view: EndpointView) -> None:
    """Refuses a body of rows with more values than the rows of any request have.

    Raises:
        TooLargeError: it does not matter how they are spread over rows.
    """
    if len(body) > INLINE_BYTES:
        most = _most_values(view) + _BESIDE_TEXTS
        quick = most_elements(body)
        if quick.commas > most and elements(body, len(body), most).commas > most:
            raise TooLargeError(
                f"The body has more values than {view.max_texts} rows of {len(view.features)} "
                "features: this endpoint takes no more at once."
            )


def _most_things(view: EndpointView) -> int:
    of_texts = _OF_A_TEXT * max(_LEAST_TEXTS, view.max_texts)
    of_tables = len(view.features) * (_OF_A_FEATURE + _OF_A_VALUE * view.max_texts)
    return _BESIDE_TEXTS + of_texts + of_tables


def _most_values(view: EndpointView) -> int:
    """Of the rows of a table, and one row more."""
    return (view.max_texts + 1) * (len(view.features) + 1) if view.features else 0
