"""How sentences and rows are set: at full width, with nothing lost and no figure broken."""

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from headrace.commands.layout import GLUE, Pieces, Sentence, TableRow, rows, sentences, wrap

# None is wider than the narrowest line below: 24 cells, of which 8 are indented.
WORDS = st.text(alphabet="abcdefgh'-.,:日本", min_size=1, max_size=12).filter(
    lambda word: cell_len(word) <= 16
)
FIGURES = st.sampled_from(["191 of 192", "(99.5 %)", "2 points", "1.25 times", "version 7", "3 s"])
TEXTS = st.lists(st.one_of(WORDS, FIGURES), min_size=1, max_size=40)


def drawn(what: RenderableType, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(what)
    return capture.get().splitlines()


@given(TEXTS, st.integers(24, 160), st.integers(0, 8), st.integers(0, 8))
def test_nothing_is_lost_and_no_line_is_longer_than_it_may_be(
    pieces: list[str], width: int, first: int, rest: int
) -> None:
    lines = wrap(" ".join(pieces), width, first=first, rest=rest)
    assert " ".join(line.strip() for line in lines) == " ".join(pieces)
    assert max(map(cell_len, lines)) <= width
    assert all(line.startswith(" " * rest) for line in lines[1:])


@given(TEXTS, st.integers(24, 160))
def test_no_figure_is_broken_and_every_line_takes_what_it_can(
    pieces: list[str], width: int
) -> None:
    lines = wrap(" ".join(pieces), width)
    left = list(pieces)
    for line, following in zip(lines, [*lines[1:], None], strict=True):
        words = line
        while words:
            piece = left.pop(0)
            assert words == piece or words.startswith(f"{piece} "), (words, piece)
            words = words[len(piece) :].strip()
        if following is not None:
            assert cell_len(f"{line} {left[0]}") > width
    assert not left


def test_words_that_fit_in_no_line_are_cut_and_not_lost() -> None:
    lines = wrap(f"see s3://{'a' * 100} there", 40, first=4, rest=4)
    assert "".join(line.strip() for line in lines) == f"sees3://{'a' * 100}there"
    assert max(map(len, lines)) <= 40
    glued = wrap(GLUE.join(["evidence"] * 20), 40)
    assert "".join(glued).replace(" ", "") == "evidence" * 20
    assert wrap("", 40, first=2) == ["  "]


def test_a_sentence_of_several_lines_is_set_as_one() -> None:
    assert wrap("no room:\n  disk\tfull\n", 40) == ["no room: disk full"]


def test_rows_stand_below_each_other_and_sentences_at_full_width() -> None:
    reason = "a reason that is told " * 8
    shown = drawn(
        rows(
            ("when", "what"),
            [
                TableRow(("now", "Canary 5 %"), sentences(reason, "")),
                TableRow(("yesterday", "[red]")),
            ],
        ),
        80,
    )
    assert shown[0].rstrip() == "when       what"
    assert shown[1] == "now        Canary 5 %"
    assert shown[-1] == "yesterday  [red]"  # no markup: it is what a person wrote
    assert all(line.startswith("    a") or line[4] != " " for line in shown[2:-1])
    assert all(len(line.split()) >= 13 for line in shown[2:-2])


def test_a_cell_too_long_for_its_row_has_its_own_line_and_pushes_no_column_apart() -> None:
    table = [
        TableRow(("tone", "version 1", "Serving")),
        TableRow(("n" * 60, "version 12", "Canary 25 %")),
    ]
    assert drawn(rows(("endpoint", "serves", "newest"), table), 80) == [
        "endpoint  serves      newest",
        "tone      version 1   Serving",
        "n" * 60,
        "          version 12  Canary 25 %",
    ]
    alone = drawn(rows(("endpoint", "serves", "newest"), table[1:]), 80)
    assert alone == [
        "endpoint  serves      newest",
        "n" * 60,
        "          version 12  Canary 25 %",
    ]
    assert max(map(len, drawn(rows((), [TableRow(("a" * 200, "last"))]), 80))) <= 80


def test_a_row_too_long_for_its_line_is_a_sentence_and_loses_nothing() -> None:
    shown = drawn(rows((), [TableRow(("a" * 50, "b" * 90, "last"))]), 80)
    assert "".join("".join(shown).split()) == f"{'a' * 50}{'b' * 90}last"
    assert max(map(len, shown)) <= 80


def test_pieces_are_not_broken_and_go_on_in_the_next_line() -> None:
    names = ["converting", "[✗ 5 %]", "25 %", "[50 % left]", "promoted", "settled"]
    for width in range(20, 100):
        shown = drawn(Pieces(tuple(map(Text, names)), between=" > "), width)
        assert max(map(cell_len, shown)) <= width
        assert re.split(r" > ", re.sub(r"\s+>\s+", " > ", " ".join(shown))) == names
        assert all(any(name in line for line in shown) for name in names)


def test_a_sentences_further_lines_may_be_indented_more() -> None:
    shown = drawn(Sentence("word " * 30, indent=0, rest=2), 40)
    assert shown[0].startswith("word")
    assert {line[:3] for line in shown[1:]} == {"  w"}
