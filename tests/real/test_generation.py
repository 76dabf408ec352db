"""Text that real Tritons write: the package, its tokens, callers who leave, Tritons that end."""

import asyncio
import dataclasses
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
from fake_mlflow import FakeMlflow, serve
from gateway_world import call_of, endpoint_of, tokenizer_json, writer_of
from model_processes import model_processes
from msgspec.structs import replace
from own_servers import TritonProcess
from pipeline_world import World, world_of
from promotable import assert_promotable
from real_triton import brought
from tiny_models import decoder
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from contracts.endpoint import ServingOptions
from contracts.loading import LoaderReport
from contracts.manifest import MODEL_ONNX, TOKENIZER, GenerationSpec, Manifest, TokenRules
from contracts.model import DEFAULT_POOL, ModelRef
from gateway.batching.batcher import Batcher
from gateway.batching.prompts import PromptFlow
from gateway.calls import Sampling
from gateway.engine.fleet import Fleet, Replica
from gateway.engine.protocol import EngineModelError, Prompt
from gateway.engine.triton import TritonEngine
from gateway.errors import ModelUnavailableError
from gateway.inference.generation import Generation, Text
from gateway.packages import ServedModel
from registry.conversions.messages import ConversionRequest
from registry.convert import package
from registry.convert.parity.continuations import Decoder
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.loading.placement import UploadedFiles
from registry.packages.store import PackageStore

pytestmark = pytest.mark.real

SECONDS = 60.0
ROWS = 4
LONGEST = 2048
VOCABULARY = 52  # of the tokeniser
GRAPH = decoder(positions=LONGEST, vocabulary=VOCABULARY)
RANDOM = np.random.default_rng(0)
PROMPTS = [
    RANDOM.integers(0, VOCABULARY, RANDOM.integers(1, 24)).tolist() for _ in range(200)
]  # fmt: skip


def publish(store: PackageStore, folder: Path) -> ServedModel:
    """A decoder of one layer as a package."""
    folder.mkdir()
    (folder / MODEL_ONNX).write_bytes(GRAPH.SerializeToString())
    (folder / TOKENIZER).write_bytes(tokenizer_json())
    package.write_generation_config(
        folder, context=LONGEST, rows=ROWS, threads=1, generation=GenerationSpec()
    )
    model = writer_of(rows=ROWS, longest=LONGEST)
    files = package.proofs(folder)
    manifest = model.manifest.model_copy(update={"files": files})
    store.publish(folder, manifest)
    return ServedModel(manifest.ref(), manifest, model.encoder, model.padder)


async def loaded(
    store: PackageStore, ref: ModelRef, triton: TritonProcess, folder: Path
) -> LoaderReport:
    """Has a loader of its own bring the package to a Triton: by a folder, or else by the call."""
    placement = None if folder.name == "one-loader" else UploadedFiles()
    return await brought(folder, store, triton, ref, placement=placement)


async def written(engine: TritonEngine, prompt: Prompt) -> list[int]:
    stream = engine.generate(prompt, SECONDS)
    tokens: list[int] = []
    while True:
        part = await stream.next()
        tokens += part.tokens
        if part.ending is not None:
            return tokens


def asking(name: str, ids: Sequence[int], most: int = 16, **how: Any) -> Prompt:
    usual = {"temperature": 0.0, "top_p": 1.0, "seed": 0, "stop_ids": ()}
    return Prompt(name, ids, most, **{**usual, **how})


async def all_written(engine: TritonEngine, prompts: list[Prompt]) -> list[list[int]]:
    """Of many prompts, some of them at a time: more than there are rows."""
    room = asyncio.Semaphore(3 * ROWS)

    async def one(prompt: Prompt) -> list[int]:
        async with room:
            return await written(engine, prompt)

    return await asyncio.gather(*(one(prompt) for prompt in prompts))


async def test_a_package_writes_as_its_graph_does_whatever_runs_beside_it(
    tritons: list[TritonProcess], tmp_path: Path
) -> None:
    store = PackageStore((tmp_path / "store").as_uri())
    model = publish(store, tmp_path / "source")
    alone = Decoder(GRAPH, threads=1)
    expected = [alone.writes(ids, (5,), most=16)[0] for ids in PROMPTS]
    for triton, name in zip(tritons, ("one-loader", "other-loader"), strict=True):
        report = await loaded(store, model.ref, triton, tmp_path / name)
        assert [cost.bucket for cost in report.loaded[0].costs] == [8, 16, LONGEST]
        assert report.loaded[0].instances == 1
        engine = TritonEngine(triton.grpc)
        greedy = [asking(model.name, ids, stop_ids=(5,)) for ids in PROMPTS]
        assert await all_written(engine, greedy) == expected
        chance = [
            asking(model.name, ids, temperature=1.0, top_p=0.9, seed=seed)
            for seed, ids in enumerate(PROMPTS[:40])
        ]
        together = await all_written(engine, chance)
        assert together == [await written(engine, prompt) for prompt in chance]
        assert len({tuple(tokens) for tokens in together}) > 20
        with pytest.raises(EngineModelError, match=f"over the model's {LONGEST}"):
            await written(engine, asking(model.name, [1], LONGEST))
        await engine.close()
        assert "Traceback" not in triton.log.read_text()


@dataclass
class Gateway:
    """A gateway's core over two Tritons."""

    world: World
    batcher: Batcher

    @property
    def replicas(self) -> list[Replica]:
        """By Triton, the first one first."""
        return sorted(self.batcher.replicas, key=lambda replica: replica.address)

    async def begin(self, most: int, stream: int = 0) -> Text:
        call = call_of(f"w{stream} w1", request_id=f"r{stream}", timeout=SECONDS)
        call = replace(call, sampling=Sampling(most))
        return await Generation(self.world.pipeline).begin(call)


@asynccontextmanager
async def gateway(model: ServedModel, tritons: list[TritonProcess]) -> AsyncIterator[Gateway]:
    async with world_of(endpoint_of(model.ref), more=(model,)) as world:
        fleet = Fleet(TritonEngine, ahead=2)
        fleet.set_addresses([triton.grpc for triton in tritons])
        batcher = Batcher(model, fleet, world.metrics)
        changed = asyncio.Event()
        batcher.connect(fleet.replicas(model.name, ROWS, changed.set))
        fleet.start()
        while not all(replica.serves for replica in batcher.replicas):
            await changed.wait()
            changed.clear()
        serving = world.endpoints.serving
        batchers = {DEFAULT_POOL: {model.ref.package: batcher}}
        world.endpoints.serve(dataclasses.replace(serving, batchers=batchers))
        yield Gateway(world, batcher)
        await fleet.close()


async def to_its_end(flow: PromptFlow) -> None:
    while (await flow.next()).ending is None:
        pass


async def read(text: Text) -> str:
    return "".join([piece async for piece in text])


async def test_a_caller_who_leaves_frees_a_row_in_triton(
    tritons: list[TritonProcess], tmp_path: Path
) -> None:
    store = PackageStore((tmp_path / "store").as_uri())
    model = publish(store, tmp_path / "source")
    await loaded(store, model.ref, tritons[0], tmp_path / "one-loader")
    async with gateway(model, tritons[:1]) as here:
        texts = [await here.begin(LONGEST - 2, stream) for stream in range(ROWS)]
        *left, long = texts
        reading = asyncio.create_task(read(long))
        for text in left:
            await anext(text)
            text.close()
        # All rows were taken, for as long as the one text that goes on.
        await read(await here.begin(3))
        assert not reading.done()
        await reading
        assert long.generated == LONGEST - 2
        assert not here.replicas[0].busy
        statuses = [event.status for event in here.world.recorder.events]
        assert statuses == [499] * (ROWS - 1) + [200, 200]


async def test_a_text_of_a_model_whose_process_is_killed_breaks_off(
    tritons: list[TritonProcess], tmp_path: Path
) -> None:
    store = PackageStore((tmp_path / "store").as_uri())
    model = publish(store, tmp_path / "source")
    await loaded(store, model.ref, tritons[0], tmp_path / "one-loader")
    async with gateway(model, tritons[:1]) as here:
        prompt = asking(model.name, [2, 3], LONGEST - 2)
        flow = PromptFlow(
            here.batcher, prompt, monotonic() + SECONDS, expected=1, silent_seconds=0.5
        )
        await flow.first(monotonic() + SECONDS)
        for process in model_processes(tritons[0]):
            os.kill(process, signal.SIGKILL)
        with pytest.raises(ModelUnavailableError):
            await to_its_end(flow)
        assert not here.replicas[0].busy
        assert not here.replicas[0].serves


async def test_a_triton_that_is_killed_breaks_its_texts_off_and_the_other_one_goes_on(
    tritons: list[TritonProcess], tmp_path: Path
) -> None:
    store = PackageStore((tmp_path / "store").as_uri())
    model = publish(store, tmp_path / "source")
    for triton, name in zip(tritons, ("one-loader", "other-loader"), strict=True):
        await loaded(store, model.ref, triton, tmp_path / name)
    async with gateway(model, tritons) as one, gateway(model, tritons) as other:
        texts = [await each.begin(LONGEST - 2, at) for each in (one, other) for at in range(4)]
        assert all(replica.busy for each in (one, other) for replica in each.replicas)

        def killed_of(each: Gateway) -> Replica:
            return next(r for r in each.replicas if r.address == tritons[0].grpc)

        tritons[0].kill9()
        ended = await asyncio.gather(*(read(text) for text in texts), return_exceptions=True)
        broken = [error for error in ended if isinstance(error, Exception)]
        # On a busy machine some of its four were whole before it was killed.
        assert 1 <= len(broken) <= 4
        assert {type(error) for error in broken} == {ModelUnavailableError}
        told = [event.status for each in (one, other) for event in each.world.recorder.events]
        assert sorted(told) == [200] * (8 - len(broken)) + [503] * len(broken)
        for each in (one, other):
            statuses = [event.status for event in each.world.recorder.events]
            assert each.world.budget.by_endpoint() == {}
            assert [replica.busy for replica in each.replicas] == [False, False]
            assert 503 not in statuses or not killed_of(each).serves
            await read(await each.begin(3))


MARIAN = Path(__file__).parents[1] / "registry" / "convert" / "flavours" / "marian"


def network_of(kind: str, words: int, end: int) -> Any:
    """A network of transformers of random weights, of 128 positions."""
    import torch
    import transformers

    torch.manual_seed(0)
    layers = {"encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 128}
    wide = {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_model": 32}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=words, n_positions=128, n_embd=32, n_layer=2, n_head=4,
            initializer_range=0.4, eos_token_id=end, bos_token_id=end,
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config).eval()
    if kind == "t5":
        config = transformers.T5Config(
            vocab_size=words, d_model=32, d_kv=8, d_ff=64, num_layers=2,
            num_heads=4, initializer_factor=4.0, eos_token_id=end, decoder_start_token_id=7,
            pad_token_id=7,
        )  # fmt: skip
        return transformers.T5ForConditionalGeneration(config).eval()
    usual = {**layers, **wide, **heads, "init_std": 0.4, "eos_token_id": end, "vocab_size": words}
    if kind == "bart":  # with what facebook/bart-large-cnn has
        config = transformers.BartConfig(
            **usual, pad_token_id=7, bos_token_id=8, decoder_start_token_id=end,
            forced_eos_token_id=end,
        )  # fmt: skip
        network = transformers.BartForConditionalGeneration(config).eval()
        rules = {"forced_bos_token_id": 8, "no_repeat_ngram_size": 3, "min_length": 6}
        network.generation_config.update(num_beams=4, **rules)
    else:  # with what Helsinki-NLP/opus-mt-en-de has
        config = transformers.MarianConfig(
            **usual, pad_token_id=words - 1, decoder_start_token_id=words - 1,
            forced_eos_token_id=end, scale_embedding=True, activation_function="swish",
        )  # fmt: skip
        network = transformers.MarianMTModel(config).eval()
        network.generation_config.update(num_beams=6, bad_words_ids=[[words - 1]])
        with torch.no_grad():
            network.final_logits_bias[0, words - 1] = 9  # it would be written often
    with torch.no_grad():
        network.final_logits_bias += torch.randn_like(network.final_logits_bias)
    return network


@pytest.mark.export
@pytest.mark.filterwarnings("default")  # the libraries' own
@pytest.mark.parametrize("kind", ["gpt2", "t5", "bart", "marian"])
async def test_what_is_registered_writes_what_transformers_writes(
    triton: TritonProcess, tmp_path: Path, kind: str
) -> None:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    torch = pytest.importorskip("torch", reason="needs the export environment")
    transformers = pytest.importorskip("transformers", reason="needs the export environment")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({sign: at for at, sign in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<end>", model_max_length=128
    )
    end = fast.eos_token_id
    words, version = len(fast), tmp_path / "artifacts" / "v"
    if kind == "marian":  # its own files, and no tokenizer.json
        shutil.copytree(MARIAN, version)
        words, end = len(json.loads((MARIAN / "vocab.json").read_text(encoding="utf-8"))), 0
        start = words - 1
    else:
        fast.save_pretrained(version)
        start = {"gpt2": None, "bart": end}.get(kind, 7)
    network = network_of(kind, words, end)
    network.save_pretrained(version)
    store = PackageStore((tmp_path / "store").as_uri())
    with serve(FakeMlflow(tmp_path / "artifacts")) as fake:
        fake.register("writer", "mlflow-artifacts:/v")
        (tmp_path / "work").mkdir()
        request = ConversionRequest(
            tracking_uri=fake.uri, model="writer", version="1", store_url="unused",
            serving=ServingOptions(maxBatchSize=8), work_dir=str(tmp_path / "work"),  # type: ignore[call-arg]
        )  # fmt: skip
        ref = convert(request, TrackingServer(fake.uri), store, lambda _phase, _words: None)
        assert_promotable(request, ref, store)
    manifest: Manifest = store.manifest(ref.package)
    assert manifest.generation is not None
    assert manifest.generation.stop_ids == (end,)
    assert manifest.generation.start_id == start
    assert manifest.generation.rules == {
        "bart": TokenRules(
            forced_bos_token_id=8,
            forced_eos_token_id=end,
            no_repeat_ngram_size=3,
            min_new_tokens=5,
        ),
        "marian": TokenRules(forced_eos_token_id=0, bad_words_ids=((words - 1,),)),
    }.get(kind, TokenRules())
    assert manifest.tokenizer.vocabulary == words
    assert manifest.tokenizer.max_tokens == 128
    assert manifest.parity is not None
    assert manifest.parity.equal_labels == 1
    await loaded(store, ref, triton, tmp_path / "loader")
    prompts = [RANDOM.integers(0, 256, RANDOM.integers(1, 90)).tolist() for _ in range(200)]
    engine = TritonEngine(triton.grpc)
    asked = [asking(ref.triton_model, ids, 24, stop_ids=(end,)) for ids in prompts]
    found = await all_written(engine, asked)
    await engine.close()
    expected = []
    with torch.inference_mode():
        for ids in prompts:
            row = torch.tensor([ids])
            text = network.generate(
                row, attention_mask=torch.ones_like(row), do_sample=False, num_beams=1,
                max_new_tokens=24, pad_token_id=end,
            )  # fmt: skip
            expected.append(text[0, len(ids) if kind == "gpt2" else 1 :].tolist())
    assert found == expected
    assert len({tuple(tokens) for tokens in found}) > 100
