"""What each task makes of an engine's output: a file for each, and a table of all of them."""

from preprocess.tasks.head import AnsweredTexts, Head, SecondText
from preprocess.tasks.table import HEADS

__all__ = ["HEADS", "AnsweredTexts", "Head", "SecondText"]
