"""From an estimator to the engine's graph: float64 ``[batch, features]`` -> one float32 output.

``skl2onnx`` makes the graph of the estimator, in one of several layouts of its inputs. What comes
before it is written here: a column of the engine's input becomes a number or, by its place among
the known categories, a string. The graph is no proof: ``walk`` compares it with the original.
"""

import copy
import warnings
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from contracts.features import ENGINE_FEATURES, Feature, FeatureKind
from contracts.tasks import ENGINE_OUTPUT, Task
from registry.convert.errors import VersionError
from registry.convert.graph import engine_form
from registry.convert.tables.original import OriginalTableModel, library

_OPSET = {"": 18, "ai.onnx.ml": 3}
UNSEEN = "\x00unseen"  # stands for every category that the model does not know
_MATRIX = "matrix"


class GraphLayout(Enum):
    """What the estimator's graph takes."""

    MATRIX = "one matrix of float32"
    COLUMNS = "a float32 or a string for each feature"
    INTEGERS = "a float32, an int64 or a string for each feature"


def layouts(features: Sequence[Feature]) -> list[GraphLayout]:
    """Those that are worth a try, in this order."""
    found = [GraphLayout.COLUMNS]
    if all(feature.kind is not FeatureKind.CATEGORY for feature in features):
        found.insert(0, GraphLayout.MATRIX)
    if any(feature.kind is FeatureKind.INTEGER for feature in features):
        found.append(GraphLayout.INTEGERS)
    return found


def make_graph(
    original: OriginalTableModel, features: Sequence[Feature], layout: GraphLayout
) -> onnx.ModelProto:
    """The engine's graph; raises ``VersionError`` if the estimator has none of this layout."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = _convert(original, features, layout)
    except VersionError:
        raise
    except Exception as error:  # skl2onnx raises errors of many classes
        said = " ".join(str(error).split())[:300]
        raise VersionError(
            f"{type(original.estimator).__name__} can't be made a graph ({layout.value}): {said}"
        ) from error
    _end(model, original.task)
    _begin(model, features, layout)
    return model


def _convert(
    original: OriginalTableModel, features: Sequence[Feature], layout: GraphLayout
) -> onnx.ModelProto:
    skl2onnx = library("skl2onnx")
    _register_boosters(skl2onnx)
    estimator = _with_plain_names(original.estimator)
    options = None
    if original.labels:
        options = {id(estimator): {"zipmap": False}}
    model: onnx.ModelProto = skl2onnx.convert_sklearn(
        estimator,
        initial_types=_types(features, layout),
        options=options,
        target_opset=_OPSET,
    )
    return model


def _with_plain_names(estimator: Any) -> Any:  # noqa: ANN401 - of scikit-learn or in its form
    """A copy whose XGBoost model has columns f0, f1, ... of numbers, as the conversion needs."""
    copied = copy.deepcopy(estimator)
    steps = getattr(copied, "steps", None)
    last = steps[-1][1] if steps else copied
    if hasattr(last, "get_booster"):
        booster = last.get_booster()
        count = booster.num_features()
        booster.feature_names = [f"f{at}" for at in range(count)]
        booster.feature_types = ["float"] * count  # the dump of others lacks their thresholds
    return copied


def _types(features: Sequence[Feature], layout: GraphLayout) -> list[tuple[str, Any]]:
    types = library("skl2onnx.common.data_types")
    if layout is GraphLayout.MATRIX:
        return [(_MATRIX, types.FloatTensorType([None, len(features)]))]
    kinds = {_Input.FLOAT: types.FloatTensorType, _Input.INTEGER: types.Int64TensorType,
             _Input.STRING: types.StringTensorType}  # fmt: skip
    return [(feature.name, kinds[_input(feature, layout)]([None, 1])) for feature in features]


class _Input(Enum):
    FLOAT = TensorProto.FLOAT
    INTEGER = TensorProto.INT64
    STRING = TensorProto.STRING


def _input(feature: Feature, layout: GraphLayout) -> _Input:
    if feature.kind is FeatureKind.CATEGORY:
        return _Input.STRING
    whole = layout is GraphLayout.INTEGERS and feature.kind is FeatureKind.INTEGER
    return _Input.INTEGER if whole else _Input.FLOAT


def _register_boosters(skl2onnx: Any) -> None:  # noqa: ANN401 - a module without types
    """Makes XGBoost's and LightGBM's estimators known, as themselves and in a pipeline."""
    shapes = library("skl2onnx.common.shape_calculator")
    classes = shapes.calculate_linear_classifier_output_shapes
    numbers = shapes.calculate_linear_regressor_output_shapes
    options = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
    xgboost, lightgbm = library("xgboost"), library("lightgbm")
    of_xgboost = library("onnxmltools.convert.xgboost.operator_converters.XGBoost").convert_xgboost
    of_lightgbm = library(
        "onnxmltools.convert.lightgbm.operator_converters.LightGbm"
    ).convert_lightgbm
    for kind, convert, shape, taken in (
        (xgboost.XGBClassifier, of_xgboost, classes, options),
        (xgboost.XGBRegressor, of_xgboost, numbers, None),
        (lightgbm.LGBMClassifier, of_lightgbm, classes, options),
        (lightgbm.LGBMRegressor, of_lightgbm, numbers, {"split": None}),
    ):
        skl2onnx.update_registered_converter(
            kind, f"Headrace{kind.__name__}", shape, convert, options=taken, overwrite=True
        )


def _end(model: onnx.ModelProto, task: Task) -> None:
    """Leaves one output, float32, under the engine's name."""
    graph, name = model.graph, ENGINE_OUTPUT[task].name
    found = graph.output[-1].name
    inner = f"headrace_{name}"
    for node in graph.node:
        for names in (node.input, node.output):
            for at, each in enumerate(names):
                if each == found:
                    names[at] = inner
    graph.node.append(helper.make_node("Cast", [inner], [name], to=TensorProto.FLOAT))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]))
    engine_form.prune(model)  # of what makes predicted labels


def _begin(model: onnx.ModelProto, features: Sequence[Feature], layout: GraphLayout) -> None:
    """Puts the engine's one input before the estimator's."""
    graph = model.graph
    wanted = [value.name for value in graph.input]
    nodes, constants = [], []
    if layout is GraphLayout.MATRIX:
        nodes.append(helper.make_node("Cast", [ENGINE_FEATURES], [_MATRIX], to=TensorProto.FLOAT))
    else:
        for at, feature in enumerate(features):
            if feature.name not in wanted:
                continue
            column, place = f"headrace_column_{at}", f"headrace_place_{at}"
            constants.append(numpy_helper.from_array(np.array([at], np.int64), place))
            nodes.append(helper.make_node("Gather", [ENGINE_FEATURES, place], [column], axis=1))
            kind = _input(feature, layout)
            if kind is not _Input.STRING:
                nodes.append(helper.make_node("Cast", [column], [feature.name], to=kind.value))
                continue
            code, words = f"headrace_code_{at}", f"headrace_categories_{at}"
            named = np.array([*feature.categories, UNSEEN], object)
            constants.append(numpy_helper.from_array(named, words))
            nodes.append(helper.make_node("Cast", [column], [code], to=TensorProto.INT64))
            nodes.append(helper.make_node("Gather", [words, code], [feature.name], axis=0))
    del graph.input[:]
    graph.input.append(
        helper.make_tensor_value_info(ENGINE_FEATURES, TensorProto.DOUBLE, [None, len(features)])
    )
    graph.initializer.extend(constants)
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
