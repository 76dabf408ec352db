"""Tokens of texts, and texts of tokens, by the version that would answer."""

from collections.abc import AsyncIterator

import pytest
from gateway_world import call_of, endpoint_of, text_of
from pipeline_world import ONE, TWO, World, world_of

from contracts.endpoint import Arm, EndpointLimits
from gateway.errors import GatewayError, InvalidInputError, TooLargeError
from gateway.inference.tokens import MOST_CHARACTERS, Tokenisers

TEXT = text_of(4)
LIMITS = EndpointLimits(max_texts_per_request=2)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    endpoint = endpoint_of(ONE.ref, packages=(TWO.ref,), limits=LIMITS)
    async with world_of(endpoint) as made:
        yield made


@pytest.fixture
def tokenisers(world: World) -> Tokenisers:
    return Tokenisers(world.endpoints, world.admission, world.pipeline.encoding)


async def test_tokens_are_those_that_the_version_would_read(
    tokenisers: Tokenisers, world: World
) -> None:
    call = call_of(TEXT)
    ref, arm, (tokens,) = await tokenisers.tokens(call, special=True)
    assert (ref, arm) == (ONE.ref, Arm.STABLE)
    assert [one.id for one in tokens] == ONE.encoder.encode(call.texts).ids[0]
    assert world.engine.works == []
    assert world.recorder.events == []


async def test_a_forced_version_answers_with_its_own(tokenisers: Tokenisers) -> None:
    ref, arm, _ = await tokenisers.tokens(call_of("rain", forced_version="2"), special=False)
    assert (ref, arm) == (TWO.ref, Arm.FORCED)


async def test_requests_are_bounded_like_others(tokenisers: Tokenisers) -> None:
    with pytest.raises(TooLargeError, match="3 texts"):
        await tokenisers.tokens(call_of("a", "b", "c", caller="ann"), special=True)


@pytest.mark.parametrize("special", [True, False])
async def test_ids_become_the_text_again(tokenisers: Tokenisers, *, special: bool) -> None:
    _, _, (tokens,) = await tokenisers.tokens(call_of(TEXT), special=False)
    ids = [one.id for one in tokens]
    call = call_of(caller="bob")
    assert (await tokenisers.texts(call, [ids], skip_special=special))[2] == [TEXT]


@pytest.mark.parametrize(
    ("kind", "text"), [(TooLargeError, "a" * (MOST_CHARACTERS + 1)), (InvalidInputError, "\ud800")]
)
async def test_texts_that_are_too_long_or_no_unicode_are_refused(
    tokenisers: Tokenisers, kind: type[GatewayError], text: str
) -> None:
    with pytest.raises(kind):
        await tokenisers.tokens(call_of(text), special=True)


@pytest.mark.parametrize(
    ("kind", "ids"),
    [(TooLargeError, [4] * (MOST_CHARACTERS + 1)), (InvalidInputError, [2**32 - 1])],
)
async def test_ids_that_are_too_many_or_unknown_are_refused(
    tokenisers: Tokenisers, kind: type[GatewayError], ids: list[int]
) -> None:
    with pytest.raises(kind):
        await tokenisers.texts(call_of(), [ids], skip_special=True)
