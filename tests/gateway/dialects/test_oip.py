"""No bytes break the binary tensor data extension."""

import asyncio
import json
import struct

from front_fakes import Behind, client_of
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.tensors import Datatype
from gateway.dialects import oip
from gateway.dialects.oip import OutputTensor
from gateway.errors import InvalidInputError

PATH = "/v2/models/sentiment/infer"
ROUTES = (PATH, "/endpoints/sentiment", "/v1/models/minilm:predict", "/v1/embeddings")
BEHIND = Behind()


@given(st.lists(st.text(max_size=20), max_size=20))
def test_texts_come_back_as_they_were_packed(texts: list[str]) -> None:
    packed = oip.pack(OutputTensor("X", Datatype.BYTES, (len(texts),), texts))
    assert oip.unpack_texts("X", packed, len(texts)) == texts


@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_are_texts_or_refused(data: bytes, expected: int) -> None:
    try:
        texts = oip.unpack_texts("X", data, expected)
    except InvalidInputError:
        return
    assert oip.pack(OutputTensor("X", Datatype.BYTES, (len(texts),), texts)) == data


def valid(texts: list[bytes], *, output: bool) -> tuple[bytes, int]:
    blob = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    tensor = {
        "name": "TEXT",
        "shape": [len(texts)],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(blob)},
    }
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": output}}).encode()
    return header + blob, len(header)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A valid body and header length, with some of its bytes changed, cut or repeated."""
    texts = draw(st.lists(st.binary(max_size=12), min_size=1, max_size=4))
    body, length = valid(texts, output=draw(st.booleans()))
    changed = bytearray(body)
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, max(0, len(changed) - 1)))
        kind = draw(st.sampled_from(["set", "cut", "insert", "digit"]))
        if kind == "cut":
            del changed[place : place + draw(st.integers(1, 8))]
        elif kind == "insert":
            changed[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif changed:
            pool = st.integers(48, 57) if kind == "digit" else st.integers(0, 255)
            changed[place] = draw(pool)
    own = st.sampled_from([str(length).encode()])
    other = st.one_of(st.binary(max_size=6), st.integers(-5, 300).map(lambda n: str(n).encode()))
    return bytes(changed), draw(st.one_of(own, own, other))


@given(mutated())
@settings(max_examples=100, deadline=None)
def test_a_mutated_body_is_answered_or_refused_and_never_a_bug(case: tuple[bytes, bytes]) -> None:
    body, length = case

    async def ask() -> None:
        async with client_of(BEHIND) as client:
            headers = [(b"inference-header-content-length", length)]
            answer = await client.post(PATH, content=body, headers=headers)
            assert answer.status_code in (200, 400, 404, 413, 422, 501), answer.text
            if answer.status_code != 200:
                assert answer.json()["error"]
                assert "Traceback" not in answer.text

    asyncio.run(ask())


@given(st.binary(max_size=400))
@settings(max_examples=80, deadline=None)
def test_random_bytes_are_refused_on_every_route(body: bytes) -> None:
    async def ask() -> None:
        async with client_of(BEHIND) as client:
            for path in ROUTES:
                answer = await client.post(path, content=body)
                assert answer.status_code in (200, 400, 413, 422), (path, answer.text)

    asyncio.run(ask())
