"""The table of tasks: the one place that names all of them.

Code that depends on a task asks the task's head here, and never compares tasks.
"""

from collections.abc import Mapping
from types import MappingProxyType

from contracts.tasks import HEADS_GROUP, Task, load_installed
from preprocess.tasks.classification import TextClassification
from preprocess.tasks.embedding import TextEmbedding
from preprocess.tasks.entity_recognition import EntityRecognition
from preprocess.tasks.generation import TextGeneration
from preprocess.tasks.head import Head
from preprocess.tasks.hybrid import HybridEmbedding
from preprocess.tasks.multi_vector import MultiVectorEmbedding
from preprocess.tasks.question_answering import QuestionAnswering
from preprocess.tasks.ranking import TextRanking
from preprocess.tasks.sparse import SparseEmbedding
from preprocess.tasks.tabular import TabularClassification, TabularRegression
from preprocess.tasks.token_classification import TokenClassification
from preprocess.tasks.zero_shot import ZeroShotClassification

HEADS: Mapping[Task, Head] = MappingProxyType(
    {
        **{
            head.task: head
            for head in (
                TextClassification(),
                TextEmbedding(),
                SparseEmbedding(),
                HybridEmbedding(),
                TextRanking(),
                MultiVectorEmbedding(),
                TokenClassification(),
                ZeroShotClassification(),
                EntityRecognition(),
                QuestionAnswering(),
                TabularClassification(),
                TabularRegression(),
                TextGeneration(),
            )
        },
        **{task: kind() for task, kind in load_installed(HEADS_GROUP).items()},
    }
)
