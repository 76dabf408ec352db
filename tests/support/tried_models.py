"""The architectures of today, tiny and of random weights, and the page that lists what was tried.

Each is saved as people have it (tokeniser, modules, prompts) and taken through a whole conversion.
``python -P -m tried_models --document docs/supported-models.md`` in the export environment writes
the table; ``tests/registry/convert/graph/test_tried_models.py`` runs the same. It needs torch.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import own_architectures
from fake_mlflow import FakeMlflow, serve
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from bench.documents import written
from contracts.endpoint import Precision, ServingOptions
from contracts.manifest import Manifest
from registry.conversions.messages import ConversionRequest
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.packages.store import PackageStore

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ROOT / "examples" / "sentiment" / "texts" / "held_out.jsonl"
EVALUATED = 220
VOCABULARY = 500
FURTHER = 120  # tokens that classes add to a vocabulary, such as T5's hundred
LONGEST = 128
LABELS = {0: "bad", 1: "good", 2: "so-so"}
SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": LONGEST,
}
_CLASSES = {"id2label": LABELS, "label2id": {name: at for at, name in LABELS.items()}}
_ENDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}

Words = Callable[[Path], None]  # writes a tokeniser's files


def texts() -> list[str]:
    """Real sentences, on which tokenisers are trained and versions are compared."""
    with TEXTS.open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line, _ in zip(lines, range(EVALUATED), strict=False)]


@dataclass(frozen=True)
class Tried:
    """One architecture in one form.

    Attributes:
        name: of the family, as people say it.
        kind: ``model_type`` of its configuration.
        architecture: class of transformers.
        form: what else the version has, in words.
        words: writes its tokeniser.
        config: of the network, beside the usual sizes.
        sizes: names of the usual sizes, where they are others.
        pooling: of sentence-transformers; empty without modules.
        prompts: by name; the first is the usual one.
        dense: widths of layers after pooling.
        max_tokens: that the endpoint asks for.
        cross_encoder: whether CrossEncoder of sentence-transformers writes it.
        late: of late interaction: options of the transformer's module, and of the mask's those
            that it has; empty for models of another kind.
        reader: class of transformers that the tokeniser's config names, where it has its own.
        own: the shape of ``own_architectures`` whose code it brings; empty without code.
    """

    name: str
    kind: str
    architecture: str
    form: str
    words: Words
    config: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=lambda: dict(SIZE))
    pooling: str = ""
    prompts: dict[str, str] = field(default_factory=dict)
    dense: tuple[int, ...] = ()
    max_tokens: int = LONGEST
    cross_encoder: bool = False
    late: dict[str, Any] = field(default_factory=dict)
    reader: str = ""
    own: str = ""

    @property
    def slug(self) -> str:
        """For names of tests."""
        return f"{self.name}-{self.architecture}".lower().replace(" ", "-")


def write(tried: Tried, folder: Path) -> None:
    """Saves the version as its library does."""
    import torch
    import transformers

    folder.mkdir(parents=True)
    _write_words(tried, folder)
    if tried.own:
        torch.manual_seed(0)
        said = {"vocab_size": VOCABULARY, **tried.sizes, **tried.config}
        (folder / "config.json").write_text(json.dumps(said))
        own_architectures.write(folder, tried.own, tried.architecture)
        return
    config = transformers.AutoConfig.for_model(
        tried.kind, vocab_size=VOCABULARY + FURTHER, **{**tried.sizes, **tried.config}
    )
    torch.manual_seed(0)
    network = getattr(transformers, tried.architecture)(config)
    with torch.no_grad():  # far enough from 0 that answers differ from text to text
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape) * 0.2)
    if not tried.pooling and not tried.cross_encoder and not tried.late:
        network.save_pretrained(folder)
        return
    _write_sentences(tried, network, folder)


def _write_words(tried: Tried, folder: Path) -> None:
    tried.words(folder)
    if tried.reader:
        path = folder / "tokenizer_config.json"
        named = {**json.loads(path.read_text()), "tokenizer_class": tried.reader}
        path.write_text(json.dumps(named))


def _write_sentences(tried: Tried, network: Any, folder: Path) -> None:
    """By the library's own classes, out of the network and the tokeniser."""
    import sentence_transformers
    from sentence_transformers.sentence_transformer import modules

    plain = folder.parent / f"{folder.name}-plain"
    plain.mkdir()
    _write_words(tried, plain)
    network.save_pretrained(plain)
    options: dict[str, Any] = {"device": "cpu"}
    if tried.prompts:
        options |= {"prompts": tried.prompts, "default_prompt_name": next(iter(tried.prompts))}
    if tried.cross_encoder:
        sentence_transformers.CrossEncoder(str(plain), **options).save_pretrained(str(folder))
        return
    if tried.pooling == "splade":
        from sentence_transformers.sparse_encoder.modules import SpladePooling

        masked = modules.Transformer(str(plain), transformer_task="fill-mask")
        sparse = sentence_transformers.SparseEncoder(modules=[masked, SpladePooling()], **options)
        sparse.save_pretrained(str(folder))
        return
    if tried.late:
        _write_late(tried, plain, folder)
        return
    transformer = modules.Transformer(str(plain))
    width = tried.sizes.get("hidden_size") or tried.sizes["d_model"]
    parts: list[Any] = [transformer, modules.Pooling(width, tried.pooling)]
    for wide in tried.dense:
        parts.append(modules.Dense(width, wide, bias=False, activation_function=None))
        width = wide
    parts.append(modules.Normalize())
    made = sentence_transformers.SentenceTransformer(modules=parts, **options)
    made.save_pretrained(str(folder))


def _write_late(tried: Tried, plain: Path, folder: Path) -> None:
    """Late interaction, out of a network and a tokeniser."""
    import sentence_transformers
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer import modules

    masks = MultiVectorMask.config_keys
    masked = {name: given for name, given in tried.late.items() if name in masks}
    read = {name: given for name, given in tried.late.items() if name not in masks}
    similarity = read.pop("similarity", None)
    transformer = modules.Transformer(str(plain), **read)
    of_tokens = {"module_input_name": "token_embeddings"}
    (wide,) = tried.dense
    projection = modules.Dense(
        tried.sizes["hidden_size"], wide, bias=False, activation_function=None, **of_tokens
    )
    sided = [
        *(transformer, projection, MultiVectorMask(**masked)),
        modules.Normalize(**of_tokens),
    ]
    sentence_transformers.MultiVectorEncoder(
        modules=sided, similarity_fn_name=similarity, prompts=tried.prompts, device="cpu"
    ).save_pretrained(str(folder))


def converted(tried: Tried, scratch: Path) -> Manifest:
    """Takes a version through a whole conversion in float32; raises ``ConversionError``."""
    root = scratch / "artifacts"
    root.mkdir()
    write(tried, root / "v")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts())
    (root / "v" / "evaluation").mkdir()
    (root / "v" / "evaluation" / "texts.jsonl").write_text(lines, encoding="utf-8")
    work = scratch / "work"
    work.mkdir()
    with serve(FakeMlflow(root)) as fake:
        fake.register("tiny", "mlflow-artifacts:/v")
        store = PackageStore((scratch / "store").as_uri())
        request = ConversionRequest(
            tracking_uri=fake.uri,
            model="tiny",
            version="1",
            store_url="unused",
            serving=ServingOptions(precision=Precision.FP32, max_tokens=tried.max_tokens),
            allow_remote_code=bool(tried.own),
            work_dir=str(work),
        )
        ref = convert(request, TrackingServer(fake.uri), store, lambda _phase, _message: None)
        return store.manifest(ref.package)


def _saved(made: Tokenizer, folder: Path, **names: Any) -> None:
    import transformers

    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names).save_pretrained(folder)


def pieces(folder: Path) -> None:
    """WordPiece, as BERT's."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        texts(),
        trainers.WordPieceTrainer(
            vocab_size=VOCABULARY, special_tokens=special, show_progress=False
        ),
    )
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    _saved(
        made, folder,
        unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=10**30,
    )  # fmt: skip


def pieces_alone(folder: Path) -> None:
    """WordPiece whose tokeniser gives no types of tokens."""
    pieces(folder)
    path = folder / "tokenizer_config.json"
    given = {"model_input_names": ["input_ids", "attention_mask"]}
    path.write_text(json.dumps({**json.loads(path.read_text()), **given}))


def _bytes(special: list[str], template: str, pair: str) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    made.post_processor = processors.TemplateProcessing(
        single=template,
        pair=pair,
        special_tokens=[(each, at) for at, each in enumerate(special)],
    )
    return made


def bytes_between(folder: Path) -> None:
    """Byte-level pairs between a first and a last token, as RoBERTa's and BART's."""
    made = _bytes(["<s>", "<pad>", "</s>", "<unk>"], "<s> $A </s>", "<s> $A </s> </s> $B </s>")
    _saved(
        made, folder,
        bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>",
        pad_token="<pad>",
    )  # fmt: skip


def bytes_before_end(folder: Path) -> None:
    """Byte-level pairs before one token that ends the text, padded on the left, as Qwen3's."""
    made = _bytes(["<|end|>", "<|pad|>", "<|im|>"], "$A <|end|>", "$A $B <|end|>")
    _saved(made, folder, eos_token="<|end|>", pad_token="<|pad|>", padding_side="left")


def _unigram(special: list[str]) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC()])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(
        texts(),
        trainers.UnigramTrainer(
            vocab_size=VOCABULARY,
            special_tokens=special,
            unk_token=special[3],
            show_progress=False,
        ),
    )
    return made


def unigram(folder: Path) -> None:
    """Pieces by their likelihood, as XLM-RoBERTa's."""
    made = _unigram(["<s>", "<pad>", "</s>", "<unk>"])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    _saved(
        made, folder,
        bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>",
        pad_token="<pad>",
    )  # fmt: skip


def unigram_before_end(folder: Path) -> None:
    """The same before one end token, as T5's and Gemma's."""
    made = _unigram(["<pad>", "</s>", "<s>", "<unk>"])
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    _saved(made, folder, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


def pairs_of_pieces(folder: Path) -> None:
    """Pairs of pieces that fall back to bytes, as Gemma's."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    spelled = [f"<0x{byte:02X}>" for byte in range(256)]
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=special + spelled, show_progress=False
        ),
    )
    definition = json.loads(made.to_str())
    definition["model"] |= {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    definition["added_tokens"] = definition["added_tokens"][: len(special)]
    made = Tokenizer.from_str(json.dumps(definition))
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    made.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>",
        pair="<bos> $A <eos> <bos> $B <eos>",
        special_tokens=[("<bos>", 2), ("<eos>", 1)],
    )
    _saved(made, folder, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>")


def spm_alone(folder: Path) -> None:
    """``spm.model`` and no ``tokenizer.json``, as DeBERTa-v3 has it."""
    from transformers.convert_slow_tokenizer import import_protobuf

    pb = import_protobuf()
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    vocabulary = json.loads(_unigram(special).to_str())["model"]["vocab"]
    proto = pb.ModelProto()
    kinds = pb.ModelProto.SentencePiece
    for at, (piece, score) in enumerate(vocabulary):
        kind = kinds.UNKNOWN if at == 3 else kinds.CONTROL if at < 3 else kinds.NORMAL
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.model_type = pb.TrainerSpec.UNIGRAM
    for name, at in (("pad", 0), ("bos", 1), ("eos", 2), ("unk", 3)):
        setattr(proto.trainer_spec, f"{name}_id", at)
        setattr(proto.trainer_spec, f"{name}_piece", special[at])
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = True
    proto.normalizer_spec.remove_extra_whitespaces = True
    (folder / "spm.model").write_bytes(proto.SerializeToString())
    config = {"tokenizer_class": "DebertaV2Tokenizer", "do_lower_case": False, "vocab_type": "spm"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


_GEMMA = {
    "num_key_value_heads": 1,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "use_bidirectional_attention": True,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"],
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
_MODERN = {
    "local_attention": 16,
    "layer_types": ["full_attention", "sliding_attention"],
    "pad_token_id": 1,
    "bos_token_id": 0,
    "cls_token_id": 0,
    "eos_token_id": 2,
    "sep_token_id": 2,
}
_DEBERTA = {
    "relative_attention": True,
    "position_buckets": 16,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "position_biased_input": False,
    "type_vocab_size": 0,
    "pad_token_id": 0,
}
_T5_SIZE = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
_T5 = {
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "relative_attention_num_buckets": 8,
}
_BART_SIZE = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": LONGEST,
}
_XLMR = {"max_position_embeddings": LONGEST + 2, "type_vocab_size": 1, **_ENDS}
_QUERIES = {"query": "query: ", "document": "passage: "}

TRIED: tuple[Tried, ...] = (
    Tried("ModernBERT", "modernbert", "ModernBertForSequenceClassification",
          "byte-level pairs", bytes_between, {**_MODERN, **_CLASSES}),
    Tried("ModernBERT", "modernbert", "ModernBertForTokenClassification",
          "byte-level pairs", bytes_between, {**_MODERN, **_CLASSES}),
    Tried("GTE-ModernBERT", "modernbert", "ModernBertModel",
          "first token, normalised", bytes_between, _MODERN, pooling="cls"),
    Tried("DeBERTa-v3", "deberta-v2", "DebertaV2ForSequenceClassification",
          "`spm.model` alone", spm_alone, {**_DEBERTA, **_CLASSES}),
    Tried("DeBERTa-v3", "deberta-v2", "DebertaV2ForTokenClassification",
          "`spm.model` alone", spm_alone, {**_DEBERTA, **_CLASSES}),
    Tried("EmbeddingGemma", "gemma3_text", "Gemma3TextModel",
          "mean, two Dense layers, normalised, prompts", pairs_of_pieces, _GEMMA,
          pooling="mean", dense=(48, 32), prompts=_QUERIES, reader="GemmaTokenizer"),
    Tried("mmBERT", "modernbert", "ModernBertModel", "mean, normalised", pairs_of_pieces,
          {**_MODERN, "pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 1,
           "sep_token_id": 1}, pooling="mean", reader="GemmaTokenizer"),
    Tried("Qwen3-Embedding", "qwen3", "Qwen3Model",
          "last token, normalised, prompts, padded on the left", bytes_before_end,
          {"num_key_value_heads": 1, "head_dim": 16, "pad_token_id": 1, "eos_token_id": 0},
          pooling="lasttoken", prompts=_QUERIES, reader="Qwen2Tokenizer"),
    Tried("BGE-M3", "xlm-roberta", "XLMRobertaModel",
          "first token, normalised (its dense vectors)", unigram, _XLMR, pooling="cls",
          reader="XLMRobertaTokenizer"),
    Tried("E5", "xlm-roberta", "XLMRobertaModel", "mean, normalised, prompts", unigram, _XLMR,
          pooling="mean", prompts=_QUERIES, reader="XLMRobertaTokenizer"),
    Tried("GTE", "gte", "GteModel", "first token, normalised", unigram,
          {"pad_token_id": 1, "type_vocab_size": 1}, pooling="cls", reader="XLMRobertaTokenizer"),
    Tried("Nomic", "nomic_bert", "NomicBertModel", "mean, normalised, prompts", pieces,
          {"pad_token_id": 0}, pooling="mean", prompts=_QUERIES, reader="BertTokenizer"),
    Tried("EuroBERT", "eurobert", "EuroBertForSequenceClassification", "byte-level pairs",
          bytes_between, {**_ENDS, **_CLASSES, "num_key_value_heads": 2}),
    Tried("NeoBERT", "", "NeoBERTLMHead", "code of its own, mean", pieces_alone,
          {"hidden_size": 32, "num_heads": 2}, {}, reader="BertTokenizer", own="NeoBERT"),
    Tried("NeoBERT", "", "NeoBERTForSequenceClassification", "code of its own", pieces_alone,
          {"hidden_size": 32, "num_heads": 2, **_CLASSES}, {}, reader="BertTokenizer",
          own="NeoBERT"),
    Tried("Jina v3", "jina_embeddings_v3", "JinaEmbeddingsV3Model", "mean, normalised", unigram,
          {**_ENDS, "type_vocab_size": 1}, pooling="mean", reader="XLMRobertaTokenizer"),
    Tried("BGE reranker", "xlm-roberta", "XLMRobertaForSequenceClassification",
          "`CrossEncoder` with a prompt", unigram, {**_XLMR, "num_labels": 1},
          prompts={"search": "rank: "}, cross_encoder=True, reader="XLMRobertaTokenizer"),
    Tried("SPLADE", "bert", "BertForMaskedLM", "`SparseEncoder` with a prompt", pieces,
          {"pad_token_id": 0}, pooling="splade", prompts=_QUERIES),
    Tried("ColBERT", "bert", "BertModel",
          "`MultiVectorEncoder`: prompts, queries filled up with unattended tokens, punctuation "
          "left out", pieces, {"pad_token_id": 0}, prompts=_QUERIES, dense=(16,), max_tokens=100,
          late={"query_expansion": {"strategy": "fixed", "length": 32}, "document_length": 100,
                "skiplist_words": [".", ",", "!", "?", "no-token"]}),
    Tried("ColBERT, MeanMaxSim", "bert", "BertModel",
          "`MultiVectorEncoder`: queries filled up with attended tokens", pieces,
          {"pad_token_id": 0}, dense=(16,),
          late={"query_expansion": {"strategy": "min", "length": 12, "attend": True},
                "query_length": 40, "skiplist_words": ["."],
                "skiplist_tasks": ["query", "document"], "similarity": "meanmaxsim"}),
    Tried("GTE-ModernColBERT", "modernbert", "ModernBertModel",
          "`MultiVectorEncoder`: prompts, a length of each side", bytes_between, _MODERN,
          prompts=_QUERIES, dense=(16,), late={"query_length": 32, "document_length": 128}),
    Tried("T5 encoder", "t5", "T5EncoderModel", "mean, a Dense layer, normalised",
          unigram_before_end, _T5, _T5_SIZE, pooling="mean", dense=(24,), reader="T5Tokenizer"),
    Tried("T5", "t5", "T5ForSequenceClassification", "texts hold `</s>`", unigram_before_end,
          {**_T5, **_CLASSES}, _T5_SIZE, reader="T5Tokenizer"),
    Tried("BART", "bart", "BartForSequenceClassification", "texts hold `</s>`", bytes_between,
          {**_ENDS, **_CLASSES}, _BART_SIZE, reader="BartTokenizer"),
    Tried("Data2Vec", "data2vec-text", "Data2VecTextForSequenceClassification",
          "positions behind the padding id", bytes_between, {**_XLMR, **_CLASSES}),
    Tried("RoBERTa-PreLayerNorm", "roberta-prelayernorm",
          "RobertaPreLayerNormForSequenceClassification", "positions behind the padding id",
          bytes_between, {**_XLMR, **_CLASSES}),
    Tried("GPT-2", "gpt2", "GPT2ForSequenceClassification",
          "last token by the config's padding id", bytes_between,
          {**_CLASSES, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 2},
          {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": LONGEST}),
)  # fmt: skip
LONG = Tried("ModernBERT, 8,192 tokens", "modernbert", "ModernBertForSequenceClassification",
             "one row of 8,192 tokens among the texts", bytes_between,
             {**_MODERN, **_CLASSES, "max_position_embeddings": 8192,
              "num_attention_heads": 1, "num_hidden_layers": 2}, max_tokens=8192)  # fmt: skip


def table(found: Sequence[tuple[Tried, Manifest]]) -> str:
    """A line for each architecture."""
    lines = [
        "| model | class of transformers | form | task | texts | largest difference |",
        "|---|---|---|---|---|---|",
    ]
    for tried, manifest in found:
        parity = manifest.parity
        assert parity is not None
        cells = (
            tried.name, f"`{tried.architecture}`", tried.form, f"`{manifest.task}`",
            str(parity.texts), f"{parity.max_abs_difference:.1g}",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Converts all of them, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--document", type=Path, help="markdown whose table is written")
    arguments = parser.parse_args()
    found = []
    for tried in (*TRIED, LONG):
        with tempfile.TemporaryDirectory() as scratch:
            found.append((tried, converted(tried, Path(scratch))))
        print(tried.slug, found[-1][1].parity, flush=True)
    if arguments.document is not None:
        page = arguments.document.read_text(encoding="utf-8")
        page = written(page, {"architectures": table(found)}, marker="measured")
        arguments.document.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
