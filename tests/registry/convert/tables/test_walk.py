"""Versions of tables on their whole way to a package, over a real socket and real ONNX Runtime."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest

pytest.importorskip("skl2onnx", reason="needs the extra tables")
pytest.importorskip("xgboost", reason="needs the extra tables")

from fake_mlflow import FakeMlflow, serve
from table_conversions import TableConversions as Conversions
from table_conversions import encoded
from table_models import classifier, logged, people, spends

from contracts.features import ENGINE_FEATURES, FeatureKind
from contracts.manifest import MODEL_ONNX, TOKENIZER, Manifest
from contracts.tasks import Task
from registry.conversions.index import signature
from registry.convert.errors import VersionError
from registry.convert.parity.engine import GraphEngine

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class TableConversions(Conversions):
    """Of versions that become graphs."""

    def answers(self, manifest: Manifest, rows: list[Any]) -> np.ndarray:
        """What the engine answers to rows as callers send them."""
        engine = GraphEngine(onnx.load(self.file(manifest, MODEL_ONNX)), threads=1)
        return engine.run({ENGINE_FEATURES: encoded(manifest, rows)})[0]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TableConversions]:
    (tmp_path / "artifacts").mkdir()
    with serve(FakeMlflow(tmp_path / "artifacts")) as fake:
        yield TableConversions(fake, tmp_path)


def test_a_pipeline_of_scikit_learn_answers_as_it_did(world: TableConversions) -> None:
    model, frame = classifier()
    logged(model, frame)(world.version)
    manifest = world.convert()
    assert manifest.task is Task.TABULAR_CLASSIFICATION
    assert manifest.labels == ("no", "yes")
    assert TOKENIZER not in manifest.files
    kinds = {feature.name: feature.kind for feature in manifest.features}
    assert kinds == {
        "age": FeatureKind.INTEGER,
        "income": FeatureKind.NUMBER,
        "city": FeatureKind.CATEGORY,
        "member": FeatureKind.BOOLEAN,
    }
    age, _, city, member = manifest.features
    assert age.nullable  # the pipeline imputes
    assert city.categories == ("Oslo", "Paris", "Rome")
    assert city.unseen  # and ignores other cities
    assert sum(age.counts) == sum(city.counts) == sum(member.counts) == 100
    assert manifest.profile is not None
    assert manifest.profile.texts == 100
    rows = people(200, seed=7)
    found = world.answers(manifest, rows.to_dict("records"))
    np.testing.assert_allclose(found, model.predict_proba(rows), atol=1e-5)


@pytest.mark.parametrize("flavour", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("kind", ["classifier", "regression"])
def test_boosted_trees_answer_as_they_did_with_missing_values(
    world: TableConversions, flavour: str, kind: str
) -> None:
    library = pytest.importorskip(flavour, reason="needs the extra tables")
    prefix, quiet = ("XGB", {}) if flavour == "xgboost" else ("LGBM", {"verbose": -1})
    frame = people(400)[["age", "income", "member"]]
    frame["income"] = frame["income"].where(frame.index % 7 != 0)
    target = spends(frame.fillna(0))
    if kind == "classifier":
        model = getattr(library, f"{prefix}Classifier")(n_estimators=20, **quiet)
        model.fit(frame, np.digitize(target, [200, 350]))
    else:
        model = getattr(library, f"{prefix}Regressor")(n_estimators=20, **quiet)
        model.fit(frame, target)
    logged(model, frame, flavour=flavour)(world.version)
    manifest = world.convert()
    assert [feature.nullable for feature in manifest.features] == [True, True, False]
    rows = people(200, seed=3)[["age", "income", "member"]]
    rows["income"] = rows["income"].where(rows.index % 5 != 0)
    asked = [
        {name: None if pd.isna(value) else value for name, value in row.items()}
        for row in rows.to_dict("records")
    ]
    found = world.answers(manifest, asked)
    if kind == "classifier":
        assert manifest.labels == ("0", "1", "2")
        np.testing.assert_allclose(found, model.predict_proba(rows), atol=1e-4)
    else:
        assert manifest.dimension == 1
        assert [answer.name for answer in manifest.answers] == ["prediction"]
        np.testing.assert_allclose(found[:, 0], model.predict(rows), rtol=1e-4)


def test_an_array_of_numbers_has_features_without_names(world: TableConversions) -> None:
    from sklearn.ensemble import RandomForestRegressor

    random = np.random.default_rng(0)
    table = random.normal(size=(300, 3))
    model = RandomForestRegressor(20, random_state=0).fit(table, table @ [1, 2, 3])
    logged(model, table)(world.version)
    manifest = world.convert()
    assert [feature.name for feature in manifest.features] == ["x0", "x1", "x2"]
    rows = random.normal(size=(200, 3))
    found = world.answers(manifest, rows.tolist())
    np.testing.assert_allclose(found[:, 0], model.predict(rows), rtol=1e-4, atol=1e-4)


def test_a_model_that_refuses_new_categories_and_missing_values_says_so(
    world: TableConversions,
) -> None:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = people()[["age", "city"]]
    encoder = ColumnTransformer([("city", OneHotEncoder(), ["city"])], remainder="passthrough")
    model = make_pipeline(encoder, LinearRegression()).fit(frame, spends(people()))
    logged(model, frame)(world.version)
    age, city = world.convert().features
    assert not age.nullable
    assert not city.unseen


def test_a_candidate_takes_the_buckets_of_the_stable_version(world: TableConversions) -> None:
    model, frame = classifier()
    logged(model, frame)(world.version)
    stable = world.convert()
    world.version.rename(world.fake.root / "before")
    model, frame = classifier(seed=5)
    logged(model, frame)(world.version)
    candidate = world.convert(stable=signature(stable).model_dump())
    for one, other in zip(candidate.features, stable.features, strict=True):
        assert one.statistic() == other.statistic()
    assert candidate.features != stable.features  # the counts are its own


def test_a_candidate_with_other_features_is_refused(world: TableConversions) -> None:
    model, frame = classifier()
    logged(model, frame)(world.version)
    stable = world.convert()
    world.version.rename(world.fake.root / "before")
    from sklearn.linear_model import LogisticRegression

    few = frame[["age", "income"]]
    logged(LogisticRegression().fit(few, model.predict(frame)), few)(world.version)
    with pytest.raises(VersionError, match="gone city, member; new none"):
        world.convert(stable=signature(stable).model_dump())


def test_a_pickle_is_refused_unless_it_is_allowed(world: TableConversions) -> None:
    import mlflow
    from mlflow.models import infer_signature

    model, frame = classifier()
    mlflow.sklearn.save_model(
        model, str(world.version), serialization_format="cloudpickle", pip_requirements=[],
        signature=infer_signature(frame), input_example=frame[:50],
    )  # fmt: skip
    with pytest.raises(VersionError, match=r"model\.pkl, a pickle.*skops"):
        world.convert()
    assert world.convert(allow_pickle=True).task is Task.TABULAR_CLASSIFICATION


def test_what_is_no_data_in_a_skops_file_is_refused(world: TableConversions) -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    model, frame = classifier()
    odd = make_pipeline(FunctionTransformer(people), model)
    import skops.io

    logged(model, frame)(world.version)
    skops.io.dump(odd, world.version / "model.skops")
    with pytest.raises(VersionError, match=r"table_models\.people: types that are not known"):
        world.convert()


def test_a_tree_that_points_outside_itself_is_refused_before_it_is_asked(
    world: TableConversions,
) -> None:
    from sklearn.tree import DecisionTreeRegressor

    frame = people()[["age", "income"]]
    model = DecisionTreeRegressor(max_depth=3).fit(frame, spends(frame))
    logged(model, frame)(world.version)
    import skops.io

    model.tree_.children_left[0] = 1 << 40
    skops.io.dump(model, world.version / "model.skops")
    with pytest.raises(VersionError, match="points outside itself"):
        world.convert()


def test_a_version_without_a_signature_is_refused(world: TableConversions) -> None:
    import mlflow

    model, _ = classifier()
    mlflow.sklearn.save_model(
        model, str(world.version), pip_requirements=[], skops_trusted_types=["numpy.dtype"]
    )
    with pytest.raises(VersionError, match="no signature"):
        world.convert()


def test_what_is_neither_a_classifier_nor_a_regression_is_refused(world: TableConversions) -> None:
    from sklearn.cluster import KMeans

    frame = people()[["age", "income"]]
    logged(KMeans(2, n_init=1).fit(frame), frame)(world.version)
    with pytest.raises(VersionError, match="KMeans is neither"):
        world.convert()
