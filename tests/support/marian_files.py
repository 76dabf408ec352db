"""Makes the files of ``tests/registry/convert/flavours/marian``: ``python -P`` this, once.

It needs the library sentencepiece (0.2.3 made them), which nothing else here does. Two small models
are trained, their pieces are numbered as opus-mt numbers them, and ``expected.json`` holds what
``MarianTokenizer`` of transformers makes of texts: the pieces that ``source.spm`` gives, each by
its number in ``vocab.json``, and back.
"""

import io
import json
import random
from collections.abc import Iterable
from pathlib import Path

import sentencepiece

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "registry" / "convert" / "flavours" / "marian"
TEXTS = ROOT / "examples" / "sentiment" / "texts" / "held_out.jsonl"
GERMAN = (
    "Der Film war gut und die Suppe warm.",
    "Das Wetter ist schön, und wir gehen über die Brücke.",
    "Ich weiß nicht, ob es regnet.",
    "Größere Häuser stehen größtenteils außerhalb.",
)
# A few of the rules of nmt_nfkc, whose table alone has 240 kB.
NORMALISED = {"\t": " ", "\n": " ", "\u00a0": " ", "ﬁ": "fi", "\uff21": "A", "…": "...", "½": "1/2"}
ODD = (
    *("", " ", "Hello", "  two  spaces ", "tab\tand\nline", "über schön", "日本語 text", "日 本"),
    *("x\ue000y", "ﬁne ½ \uff21", ">>deu<< Hello there", "a▁b", "naïve café — “quotes” …", "ß"),
    *("1234567890", "....!!!", "it's don't", "\u00a0nbsp\u00a0", "emoji 😀 ok", "UPPER MiXeD"),
)
END, UNKNOWN = 0, 1


def trained(texts: Iterable[str], size: int) -> bytes:
    """A model of the unigram kind."""
    rules = FOLDER / "rules.tsv"
    rules.write_text(
        "".join(
            f"{ord(sign):X}\t{' '.join(f'{ord(each):X}' for each in text)}\n"
            for sign, text in NORMALISED.items()
        )
    )
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=made,
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_tsv=str(rules),
        minloglevel=2,
    )
    rules.unlink()
    return made.getvalue()


def main() -> None:
    """Writes the files."""
    FOLDER.mkdir(exist_ok=True)
    texts = [json.loads(line)["text"].replace("\n", " ") for line in TEXTS.open()]
    source = trained(texts, 400)
    (FOLDER / "source.spm").write_bytes(source)
    reader = sentencepiece.SentencePieceProcessor(model_proto=source)
    target = sentencepiece.SentencePieceProcessor(model_proto=trained(GERMAN * 30, 150))
    pieces = [
        model.id_to_piece(number)
        for model in (reader, target)
        for number in range(model.get_piece_size())
        if not (model.is_control(number) or model.is_unknown(number))
    ]
    named = ["</s>", "<unk>", *dict.fromkeys(pieces), ">>deu<<", "<pad>"]
    numbers = {piece: number for number, piece in enumerate(named)}
    (FOLDER / "vocab.json").write_text(json.dumps(numbers, ensure_ascii=False, indent=0))

    def ids_of(text: str) -> list[int]:
        code = []
        if text.startswith(">>") and "<<" in text:
            end = text.index("<<") + 2
            code, text = [text[:end]], text[end:]
        found = [*code, *reader.encode(text, out_type=str)]
        return [*(numbers.get(piece, UNKNOWN) for piece in found), END]

    def text_of(ids: list[int]) -> str:
        return str(reader.decode_pieces([named[each] for each in ids])).replace("▁", " ").strip()

    chance = random.Random(0)
    written = [
        [chance.randrange(2, len(named) - 2) for _ in range(chance.randrange(1, 12))]
        for _ in range(40)
    ]
    expected = {
        "read": [[text, ids_of(text)] for text in (*ODD, *texts[:100])],
        "written": [[ids, text_of(ids)] for ids in written],
    }
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False))


if __name__ == "__main__":
    main()
