"""Registered decoders: what becomes a package that writes, and what is refused."""

from pathlib import Path

import onnx
import pytest
from fake_mlflow import FakeMlflow
from google.protobuf import text_format
from onnx import helper
from promotable import assert_promotable
from tiny_models import TEXTS, decoder, tokenizer, write_json
from tritonclient.grpc import model_config_pb2

from contracts.endpoint import Precision, ServingOptions
from contracts.manifest import CONFIG_PYTHON, MODEL_ONNX, Manifest
from contracts.tasks import Task
from registry.conversions.messages import ConversionRequest, Signature
from registry.convert.errors import VersionError
from registry.convert.parity.continuations import Decoder, prove_continuations
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.packages.store import PackageStore

pytestmark = pytest.mark.slow

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [2, 2]]


def of_all_tokens() -> onnx.ModelProto:
    """The same whose logits are of all tokens, as Optimum exports them."""
    model = decoder()
    graph = model.graph
    for node in graph.node:
        if "logits" in node.output:
            node.output[0] = "last_logits"
    graph.node.append(helper.make_node("Unsqueeze", ["last_logits", "first"], ["logits"]))
    (logits,) = (each for each in graph.output if each.name == "logits")
    sizes = logits.type.tensor_type.shape.dim
    width = sizes[1].dim_value
    del sizes[:]
    for size in (None, None, width):
        sizes.add(**({} if size is None else {"dim_value": size}))
    return model


def converted(
    fake: FakeMlflow, folder: Path, model: onnx.ModelProto, **changes: object
) -> tuple[Manifest, Path]:
    version = fake.root / "version"
    version.mkdir()
    onnx.save(model, str(version / "model.onnx"))
    tokenizer().save(str(version / "tokenizer.json"))
    config = {"architectures": ["TinyForCausalLM"], "n_positions": 64, "eos_token_id": [3, 5]}
    write_json(version / "config.json", config)
    (version / "evaluation_texts.txt").write_text("\n".join(TEXTS))
    fake.register("tiny", "mlflow-artifacts:/version")
    (folder / "work").mkdir()
    request = ConversionRequest.model_validate(
        {
            "tracking_uri": fake.uri,
            "model": "tiny",
            "version": "1",
            "store_url": "unused",
            "serving": ServingOptions(max_batch_size=8),
            "work_dir": str(folder / "work"),
            **changes,
        }
    )
    store = PackageStore((folder / "store").as_uri())
    ref = convert(request, TrackingServer(fake.uri), store, lambda _phase, _words: None)
    assert_promotable(request, ref, store)
    return store.manifest(ref.package), folder / "store" / ref.package


@pytest.mark.parametrize("form", [decoder, of_all_tokens])
def test_a_decoder_becomes_a_package_that_writes_as_it_does(
    fake: FakeMlflow, tmp_path: Path, form: type[onnx.ModelProto]
) -> None:
    manifest, package = converted(fake, tmp_path, form())
    assert (manifest.task, manifest.labels) == (Task.TEXT_GENERATION, ("stop", "length"))
    assert manifest.precision is Precision.FP32
    assert manifest.tokenizer.max_tokens == 64
    assert manifest.generation is not None
    assert manifest.generation.stop_ids == (3, 5)
    assert manifest.parity is not None
    assert (manifest.parity.equal_labels, manifest.parity.texts) == (1, len(TEXTS))
    assert manifest.parity.batch_max_abs_difference < 1e-4
    assert manifest.profile is not None
    assert manifest.profile.texts == len(TEXTS)
    published = Decoder(onnx.load(str(package / MODEL_ONNX)), threads=1)
    original = Decoder(decoder(), threads=1)
    for prompt in PROMPTS:
        text, _ = published.writes(prompt, (), most=8)
        assert text == original.writes(prompt, (), most=8)[0]
    config = text_format.Parse(
        (package / CONFIG_PYTHON).read_text(), model_config_pb2.ModelConfig()
    )
    assert config.model_transaction_policy.decoupled
    assert config.parameters["context"].string_value == "64"
    assert config.parameters["rows"].string_value == "8"


def without_positions() -> onnx.ModelProto:
    model = decoder()
    for each in model.graph.input:
        if each.name == "position_ids":
            each.name = "places_of_tokens"
    return model


@pytest.mark.parametrize(
    ("model", "changes", "reason"),
    [
        (without_positions(), {}, "the graph takes .*places_of_tokens"),
        (decoder(), {"task": Task.TEXT_CLASSIFICATION}, "does text-generation"),
        (
            decoder(),
            {"stable": Signature(task=Task.TEXT_EMBEDDING, dimension=4)},
            "its task is text-generation",
        ),
    ],
)
def test_what_can_not_be_written_with_is_refused_with_a_sentence(
    fake: FakeMlflow,
    tmp_path: Path,
    model: onnx.ModelProto,
    changes: dict[str, object],
    reason: str,
) -> None:
    with pytest.raises(VersionError, match=reason):
        converted(fake, tmp_path, model, **changes)


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "BartForConditionalGeneration"])
@pytest.mark.parametrize("precision", [Precision.INT8, Precision.FP16])
def test_smaller_numbers_of_what_writes_are_refused_with_the_reason(
    fake: FakeMlflow, tmp_path: Path, architecture: str, precision: Precision
) -> None:
    version = fake.root / "version"
    version.mkdir()
    tokenizer().save(str(version / "tokenizer.json"))
    config = {"architectures": [architecture], "n_positions": 64, "eos_token_id": 3}
    write_json(version / "config.json", config)
    (version / "model.safetensors").write_bytes(b"")  # which nobody opens for this
    fake.register("tiny", "mlflow-artifacts:/version")
    request = ConversionRequest(
        tracking_uri=fake.uri, model="tiny", version="1", store_url="unused",
        serving=ServingOptions(precision=precision), work_dir=str(tmp_path),
    )  # fmt: skip
    store = PackageStore((tmp_path / "store").as_uri())
    reason = f"text-generation is served in fp32, and {precision} is asked for.*no limit is known"
    with pytest.raises(VersionError, match=reason):
        convert(request, TrackingServer(fake.uri), store, lambda _phase, _words: None)


def test_a_graph_that_writes_something_else_is_refused() -> None:
    one, other = (Decoder(decoder(seed=seed), threads=1) for seed in (0, 1))
    written = [one.writes(prompt, (), most=4) for prompt in PROMPTS]
    firsts = one.together(PROMPTS)
    original = [tokens for tokens, _ in written], firsts
    assert prove_continuations(one, PROMPTS, (), original, reference="it", most=4).equal_labels == 1
    with pytest.raises(VersionError, match="does not write as the original"):
        prove_continuations(other, PROMPTS, (), original, reference="it", most=4)
