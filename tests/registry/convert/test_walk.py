"""The whole way of a version, over a real socket and real ONNX Runtime, in milliseconds."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from fake_mlflow import FakeMlflow
from google.protobuf import text_format
from promotable import assert_promotable
from tiny_models import (
    TEXTS,
    asking_tokenizer,
    classifier,
    hybrid,
    labeller,
    reader,
    token_vectors,
    tokenizer,
    write_json,
    write_onnx_version,
)
from tokenizers import Tokenizer, models
from tritonclient.grpc import model_config_pb2

from contracts.endpoint import EngineChoice, Phase, Precision, ServingOptions
from contracts.loading import DeviceKind
from contracts.manifest import CODE, MODEL_ONNX, EngineKind, Manifest
from contracts.statistics import Statistic
from contracts.tasks import Task
from preprocess.model_code import archive
from preprocess.tasks import HEADS
from registry.conversions.messages import ConversionRequest, Signature
from registry.convert.errors import ConversionError, EnvironmentFaultError, VersionError
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.packages.store import PackageStore

pytestmark = pytest.mark.slow

SMALL = ServingOptions(max_batch_size=8, max_tokens=64)


class ConversionHarness:
    """A registry with one version, a store and what was reported."""

    def __init__(self, fake: FakeMlflow, folder: Path) -> None:
        self.fake = fake
        self.folder = folder
        self.version = fake.root / "version"
        self.run = fake.root / "run"
        self.store = PackageStore((folder / "store").as_uri())
        self.phases: list[Phase] = []
        fake.register("tiny", "mlflow-artifacts:/version", run_id="r1")
        fake.log_run("r1", "mlflow-artifacts:/run")

    def convert(self, **changes: object) -> Manifest:
        work = self.folder / f"work-{len(list(self.folder.iterdir()))}"
        work.mkdir()
        request = ConversionRequest.model_validate(
            {
                "tracking_uri": self.fake.uri,
                "model": "tiny",
                "version": "1",
                "store_url": "unused",
                "serving": SMALL,
                "work_dir": str(work),
                **changes,
            }
        )
        ref = convert(
            request,
            TrackingServer(self.fake.uri),
            self.store,
            lambda phase, _: self.phases.append(phase),
        )
        assert_promotable(request, ref, self.store)
        return self.store.manifest(ref.package)


@pytest.fixture
def harness(fake: FakeMlflow, tmp_path: Path) -> ConversionHarness:
    return ConversionHarness(fake, tmp_path)


def test_an_onnx_version_becomes_a_package_that_proves_itself(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    manifest = harness.convert()
    assert manifest.labels == ("bad", "good")
    assert manifest.task is Task.TEXT_CLASSIFICATION
    assert manifest.tokenizer.max_tokens == manifest.length_buckets[-1] == 24
    assert (manifest.tokenizer.pad_id, manifest.tokenizer.unk_id) == (0, 1)
    assert manifest.parity is not None
    assert manifest.parity.batch_max_abs_difference <= 1e-3
    assert harness.phases == [
        Phase.CONVERTING,
        Phase.CONVERTING,
        Phase.VERIFYING,
        Phase.PUBLISHING,
    ]
    fetched = harness.store.fetch(manifest.package_id(), harness.folder / "fetched")
    assert fetched == manifest


def test_a_registered_graph_stays_a_graph_on_gpus_and_is_not_made_int8(
    harness: ConversionHarness,
) -> None:
    write_onnx_version(harness.version)
    manifest = harness.convert(device=DeviceKind.GPU)
    assert (manifest.engine, manifest.precision) == (EngineKind.PADDED, Precision.FP32)
    assert manifest.parity is not None
    assert "registered as an ONNX graph" in manifest.parity.fallback
    assert "fused" in manifest.parity.fallback  # nothing could be, or sympy is not here
    assert manifest.fixed is None
    assert "config.onnxruntime.pbtxt" in manifest.files
    for precision, words in (
        (Precision.INT8, r"int8 was asked for, and the Tritons .* compute on GPUs"),
        (Precision.BF16, r"only the packed engine has it .*registered as an ONNX graph"),
    ):
        serving = SMALL.model_copy(update={"precision": precision})
        with pytest.raises(VersionError, match=words):
            harness.convert(device=DeviceKind.GPU, serving=serving)
    asked = SMALL.model_copy(update={"engine": EngineChoice.PACKED})
    with pytest.raises(VersionError, match="registered as an ONNX graph"):
        harness.convert(serving=asked)


def test_the_published_configs_are_for_the_published_graph(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    manifest = harness.convert()
    harness.store.fetch(manifest.package_id(), harness.folder / "fetched")
    for name in ("config.python.pbtxt", "config.onnxruntime.pbtxt"):
        text = (harness.folder / "fetched" / name).read_text()
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
        assert [tensor.name for tensor in config.input] == ["input_ids", "attention_mask"]
        assert [tensor.name for tensor in config.output] == ["logits"]
        assert config.max_batch_size == 8
    graph = onnx.load(str(harness.folder / "fetched" / MODEL_ONNX))
    assert [value.name for value in graph.graph.output] == ["logits"]


def test_the_same_version_and_options_make_the_same_package(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    serving = SMALL.model_copy(update={"precision": Precision.INT8})
    assert harness.convert(serving=serving) == harness.convert(serving=serving)
    assert len(harness.store.packages()) == 1


def test_the_profile_is_over_the_texts_that_the_run_logged(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    path = harness.run / "evaluation" / "held_out.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    profile = harness.convert().profile
    assert profile is not None
    assert (profile.texts, profile.source) == (
        len(TEXTS),
        "evaluation/held_out.jsonl of the version",
    )
    assert sum(profile.histograms[Statistic.TOKENS]) == len(TEXTS)
    assert sum(profile.labels.values()) == len(TEXTS)


def test_lineage_names_the_run_its_data_sets_and_its_commit(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    harness.fake.log_run(
        "r1",
        "mlflow-artifacts:/run",
        data={"tags": [{"key": "mlflow.source.git.commit", "value": "abc"}]},
        inputs={
            "dataset_inputs": [
                {
                    "dataset": {"name": "reviews", "digest": "d1"},
                    "tags": [{"key": "mlflow.data.context", "value": "training"}],
                }
            ]
        },
    )
    lineage = harness.convert().lineage
    assert (lineage.run_id, lineage.git_commit) == ("r1", "abc")
    assert [(item.name, item.digest, item.context) for item in lineage.data_sets] == [
        ("reviews", "d1", "training")
    ]


def test_token_vectors_are_pooled_as_modules_json_says(harness: ConversionHarness) -> None:
    harness.version.mkdir()
    onnx.save(token_vectors(), str(harness.version / "model.onnx"))
    tokenizer().save(str(harness.version / "tokenizer.json"))
    modules = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    write_json(harness.version / "modules.json", modules)
    write_json(harness.version / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    (harness.version / "evaluation_texts.txt").write_text("the soup\na good film\nrain and sun\n")
    manifest = harness.convert()
    assert manifest.parity is not None
    # Of three texts all are the nearest: neutral ones are added, to compare on.
    assert manifest.parity.neighbours is not None
    assert manifest.parity.texts >= 50
    assert manifest.ranges is not None
    assert len(manifest.ranges.low) == len(manifest.ranges.high) == 16
    assert all(low < high for low, high in zip(*dict(manifest.ranges).values(), strict=True))
    assert manifest.task is Task.TEXT_EMBEDDING
    assert manifest.dimension == 16
    assert manifest.profile is not None
    # Every norm is 1: one bucket holds all texts.
    assert manifest.profile.texts in manifest.profile.histograms[Statistic.VECTOR_NORM]


def test_int8_is_held_to_the_neighbours_that_the_endpoint_asks_for(
    harness: ConversionHarness,
) -> None:
    write_onnx_version(harness.version, token_vectors(), architecture="TinyModel")
    serving = SMALL.model_copy(update={"precision": Precision.INT8, "min_neighbours": 0.5})
    kept = harness.convert(task=Task.TEXT_EMBEDDING, serving=serving)
    assert kept.parity is not None
    assert kept.parity.limits["min_neighbours"] == 0.5
    serving = serving.model_copy(update={"precision": Precision.FP32})
    standard = harness.convert(task=Task.TEXT_EMBEDDING, serving=serving)
    assert standard.parity is not None
    assert standard.parity.limits["min_neighbours"] == 0.995


def test_one_version_in_two_precisions_has_one_space_and_other_weights_have_another(
    harness: ConversionHarness,
) -> None:
    def convert_to(precision: Precision) -> Manifest:
        serving = SMALL.model_copy(update={"precision": precision, "min_neighbours": 0.5})
        return harness.convert(task=Task.TEXT_EMBEDDING, serving=serving)

    write_onnx_version(harness.version, token_vectors(), architecture="TinyModel")
    exact, small = convert_to(Precision.FP32), convert_to(Precision.INT8)
    assert exact.precision is not small.precision
    assert exact.space == small.space == small.ref().space != ""
    write_onnx_version(harness.version, token_vectors(seed=1), architecture="TinyModel")
    assert convert_to(Precision.FP32).space not in ("", exact.space)


def test_weights_of_the_vocabulary_are_proved_as_vectors_and_counted(
    harness: ConversionHarness,
) -> None:
    write_onnx_version(harness.version, token_vectors(), architecture="TinyForMaskedLM")
    manifest = harness.convert(task=Task.SPARSE_EMBEDDING)
    assert (manifest.task, manifest.dimension) == (Task.SPARSE_EMBEDDING, 16)
    assert [spec.name for spec in manifest.outputs] == ["sparse_embedding"]
    assert manifest.parity is not None
    assert manifest.parity.neighbours is not None
    assert manifest.profile is not None
    assert sum(manifest.profile.histograms[Statistic.NON_ZEROS]) == manifest.profile.texts
    assert manifest.ranges is None


def test_kinds_of_vectors_are_proved_row_by_row_and_counted_text_by_text(
    harness: ConversionHarness,
) -> None:
    write_onnx_version(harness.version, hybrid(), architecture="TinyModel")
    manifest = harness.convert(task=Task.HYBRID_EMBEDDING)
    assert (manifest.task, manifest.dimension) == (Task.HYBRID_EMBEDDING, 16)
    assert manifest.outputs[0].shape == (-1, -1, 17)
    assert manifest.parity is not None
    assert (manifest.parity.neighbours, manifest.ranges) == (None, None)
    assert manifest.profile is not None
    for statistic in (Statistic.NON_ZEROS, Statistic.VECTOR_NORM):
        assert sum(manifest.profile.histograms[statistic]) == manifest.profile.texts


def test_a_tokeniser_logged_with_the_run_is_found(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version, with_tokenizer=False)
    (harness.run / "tokenizer").mkdir(parents=True)
    tokenizer().save(str(harness.run / "tokenizer" / "tokenizer.json"))
    assert harness.convert().tokenizer.vocabulary > 4


def test_of_a_run_nothing_else_is_downloaded(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    (harness.run / "checkpoints").mkdir(parents=True)
    (harness.run / "checkpoints" / "huge.safetensors").write_bytes(b"x")
    harness.convert()
    assert not list(harness.folder.glob("work-*/run/checkpoints"))


@pytest.mark.parametrize(
    ("stable", "words"),
    [
        (Signature(task=Task.TEXT_CLASSIFICATION, labels=("bad", "fine")), "gone fine; new good"),
        (Signature(task=Task.TEXT_EMBEDDING, dimension=2), "text-embedding"),
        (
            Signature(task=Task.TEXT_CLASSIFICATION, labels=("bad", "good"), prompts=("query",)),
            "no prompt query",
        ),
    ],
)
def test_a_version_that_would_break_callers_is_refused(
    harness: ConversionHarness, stable: Signature, words: str
) -> None:
    write_onnx_version(harness.version)
    with pytest.raises(VersionError, match=words):
        harness.convert(stable=stable)
    assert harness.store.packages() == []


def test_a_version_whose_answers_depend_on_padding_is_refused(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version, classifier(masked=False))
    with pytest.raises(VersionError, match="does not answer as the original"):
        harness.convert()


def test_a_graph_that_gives_another_number_of_labels_is_refused(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version, classifier(labels=3))
    with pytest.raises(VersionError, match="name 2 labels, but the graph gives 3"):
        harness.convert()


def test_a_graph_that_gives_nan_is_refused(harness: ConversionHarness) -> None:
    model = classifier()
    next(t for t in model.graph.initializer if t.name == "head").raw_data = np.full(
        32, np.nan, np.float32
    ).tobytes()
    write_onnx_version(harness.version, model)
    with pytest.raises(ConversionError, match=r"(?i)nan"):
        harness.convert()


def test_a_missing_tokeniser_is_waited_for_while_the_version_is_new(
    harness: ConversionHarness,
) -> None:
    write_onnx_version(harness.version, with_tokenizer=False)
    harness.fake.register("tiny", "mlflow-artifacts:/version", created=int(time.time() * 1000))
    with pytest.raises(EnvironmentFaultError, match=r"tokenizer\.json"):
        harness.convert()


def test_a_missing_tokeniser_of_an_old_version_is_its_own_fault(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version, with_tokenizer=False)
    with pytest.raises(VersionError, match=r"tokenizer\.json"):
        harness.convert()


def test_a_tokeniser_that_does_not_know_its_own_texts_is_refused(
    harness: ConversionHarness,
) -> None:
    write_onnx_version(harness.version)
    (harness.version / "evaluation_texts.txt").write_text("zzz qqq www xxx yyy ppp\n" * 9)
    with pytest.raises(VersionError, match="does not know"):
        harness.convert()


def test_a_tokeniser_that_breaks_its_own_library_off_is_the_versions_fault(
    harness: ConversionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_onnx_version(harness.version)
    words = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "[PAD]": 3}, [("a", "b")]))
    broken = json.loads(words.to_str())
    broken["model"]["continuing_subword_prefix"] = "@@"
    write_json(harness.version / "extra_files" / "tokenizer.json", broken)
    # What is known to end the process is refused before it is read, other panics when they come.
    detecting = sys.modules["registry.convert.flavours.detect"]
    with pytest.raises(VersionError, match=r"'@@'.* at which its library breaks off"):
        harness.convert()
    monkeypatch.setattr(detecting, "refuse_broken_merges", lambda _folder: None)
    with pytest.raises(VersionError, match=r"the tokenisers' library breaks off"):
        harness.convert()


def test_a_cross_encoder_becomes_a_package_that_ranks(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version, classifier(labels=1), labels=("LABEL_0",))
    manifest = harness.convert(task="text-ranking")
    assert (manifest.task, manifest.labels) == (Task.TEXT_RANKING, ("LABEL_0",))
    assert manifest.outputs[0].shape == (-1, 1)
    assert manifest.parity is not None
    assert manifest.parity.equal_labels is None
    assert manifest.profile is not None
    assert manifest.profile.labels == {"LABEL_0": manifest.profile.texts}
    assert manifest.counted_labels == manifest.labels
    assert Statistic.SCORE in manifest.profile.histograms


def test_a_model_that_labels_tokens_becomes_a_package_that_does(harness: ConversionHarness) -> None:
    labels = ("O", "B-FOOD", "I-FOOD")
    write_onnx_version(
        harness.version, labeller(), labels=labels, architecture="TinyForTokenClassification"
    )
    (harness.version / "evaluation_texts.txt").write_text("\n".join(TEXTS))
    manifest = harness.convert()
    assert (manifest.task, manifest.labels) == (Task.TOKEN_CLASSIFICATION, labels)
    assert manifest.outputs[0].shape == (-1, -1, 3)
    assert manifest.parity is not None
    assert manifest.parity.equal_labels is not None
    assert manifest.parity.equal_labels >= 0.98
    profile = manifest.profile
    assert profile is not None
    assert set(profile.labels) == set(manifest.counted_labels) == {"O", "FOOD"}
    assert profile.labels["FOOD"] > profile.texts - profile.labels["O"] > 0
    assert sum(profile.histograms[Statistic.SCORE]) == profile.labels["FOOD"]
    folder = harness.folder / "store" / manifest.package_id()
    config = text_format.Parse(
        (folder / "config.onnxruntime.pbtxt").read_text(), model_config_pb2.ModelConfig()
    )
    assert list(config.output[0].dims) == [-1, 3]


def test_a_graph_whose_logits_are_of_whole_texts_can_not_label_tokens(
    harness: ConversionHarness,
) -> None:
    write_onnx_version(harness.version, architecture="TinyForTokenClassification")
    with pytest.raises(VersionError, match="has 2 dimensions"):
        harness.convert()


def test_a_graph_of_two_logits_can_not_rank(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    with pytest.raises(VersionError, match="text-ranking"):
        harness.convert(task="text-ranking")


def test_a_model_of_entailment_becomes_a_package_that_takes_callers_labels(
    harness: ConversionHarness,
) -> None:
    labels = ("contradiction", "entailment")
    write_onnx_version(harness.version, labels=labels)
    manifest = harness.convert(task="zero-shot-classification")
    assert manifest.task is Task.ZERO_SHOT_CLASSIFICATION
    assert manifest.labels == labels
    assert manifest.parity is not None
    assert manifest.parity.equal_labels == 1
    assert manifest.profile is not None
    # Of the model's labels: callers' own are in no profile and no event.
    assert set(manifest.profile.labels) <= set(labels)


def test_a_bare_graph_without_entailment_can_not_take_callers_labels(
    harness: ConversionHarness,
) -> None:
    harness.version.mkdir()
    onnx.save(classifier(), str(harness.version / "model.onnx"))
    tokenizer().save(str(harness.version / "tokenizer.json"))
    with pytest.raises(VersionError, match="begins with 'entail'"):
        harness.convert(task="zero-shot-classification")


@pytest.mark.parametrize("stacked", [False, True])
def test_a_model_of_starts_and_ends_becomes_a_package_that_answers_questions(
    harness: ConversionHarness, stacked: bool
) -> None:
    write_onnx_version(
        harness.version,
        reader(stacked=stacked),
        architecture="TinyForQuestionAnswering",
        with_tokenizer=False,
    )
    asking_tokenizer().save(str(harness.version / "extra_files" / "tokenizer.json"))
    manifest = harness.convert()
    assert manifest.task is Task.QUESTION_ANSWERING
    assert manifest.labels == ("start", "end")  # whatever id2label says
    assert [(out.name, out.shape) for out in manifest.outputs] == [("logits", (-1, -1, 2))]
    assert manifest.parity is not None
    assert manifest.parity.max_abs_difference <= 1e-4
    assert manifest.profile is not None
    classes = HEADS[manifest.task].classes(manifest.labels)
    assert set(manifest.profile.labels) == set(manifest.counted_labels) == set(classes)
    assert sum(manifest.profile.labels.values()) == manifest.profile.texts


def test_a_graph_of_three_columns_can_not_answer_questions(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version, labeller(), architecture="TinyForQuestionAnswering")
    with pytest.raises(VersionError, match="needs start and end"):
        harness.convert()


def bring_code(version: Path) -> None:
    (version / "code" / "words").mkdir(parents=True)
    (version / "code" / "headrace_preprocessor.py").write_text("class Preprocessor: ...")
    (version / "code" / "words" / "__init__.py").write_text("")


def test_code_for_gateways_is_part_of_the_package_and_proved_with_it(
    harness: ConversionHarness,
) -> None:
    write_onnx_version(harness.version)
    plain = harness.convert(model_code=True)
    assert not plain.has_code
    bring_code(harness.version)
    manifest = harness.convert(model_code=True)
    assert manifest.has_code
    fetched = harness.folder / "fetched"
    harness.store.fetch(manifest.package_id(), fetched)
    unpacked = harness.folder / "unpacked"
    archive.unpack((fetched / CODE).read_bytes(), unpacked)
    assert (unpacked / "headrace_preprocessor.py").read_text() == "class Preprocessor: ..."
    assert (unpacked / "words" / "__init__.py").is_file()
    assert harness.convert(model_code=True).package_id() == manifest.package_id()
    (harness.version / "code" / "headrace_preprocessor.py").write_text("class Preprocessor: pass")
    assert harness.convert(model_code=True).package_id() != manifest.package_id()


def test_code_waits_until_the_operator_allows_it(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    bring_code(harness.version)
    with pytest.raises(EnvironmentFaultError, match=r"code/headrace_preprocessor\.py.*modelCode"):
        harness.convert()


def test_other_code_beside_a_model_is_left_where_it_is(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    bring_code(harness.version)
    (harness.version / "code" / "headrace_preprocessor.py").unlink()
    assert not harness.convert(model_code=True).has_code


def test_a_pickle_that_the_code_would_miss_is_told(harness: ConversionHarness) -> None:
    write_onnx_version(harness.version)
    bring_code(harness.version)
    (harness.version / "code" / "table.pkl").write_bytes(b"...")
    with pytest.raises(VersionError, match=r"code has pickles.*code/table\.pkl"):
        harness.convert(model_code=True)
