"""What a version's files say may be of any kind: the version is at fault, and is told so."""

from pathlib import Path
from typing import Any

import pytest
from tiny_models import tokenizer, write_json

from contracts.endpoint import ServingOptions
from registry.conversions.messages import ConversionRequest
from registry.convert.download import FetchedVersion, recognise
from registry.convert.errors import VersionError
from registry.convert.tracking import SourceVersion

CONFIG: dict[str, Any] = {"architectures": ["BertModel"], "model_type": "bert"}
MODULES = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", '{"architectures": 5}'),
        ("config.json", "[" * 100_000),
        ("1_Pooling/config.json", '{"pooling_mode": 5}'),
        ("config_sentence_transformers.json", '{"prompts": {"q": "x"}, "default_prompt_name": []}'),
        ("evaluation_texts.jsonl", "[" * 100_000),
    ],
)
def test_a_field_of_another_kind_is_the_version_s_own_fault(
    tmp_path: Path, file: str, content: str
) -> None:
    write_json(tmp_path / "config.json", CONFIG)
    write_json(tmp_path / "modules.json", MODULES)
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": "mean"})
    (tmp_path / "model.safetensors").write_bytes(b"")
    tokenizer().save(str(tmp_path / "tokenizer.json"))
    version = SourceVersion("s3://b", "s3://b", "", 0.0)
    fetched = FetchedVersion(version, None, tmp_path, tmp_path / "run", ())
    request = ConversionRequest(
        model="m", version="1", tracking_uri="http://m", store_url="file:///s",
        serving=ServingOptions(), work_dir="/w",
    )  # fmt: skip
    recognise(fetched, request)
    (tmp_path / file).write_text(content)
    with pytest.raises(VersionError):
        recognise(fetched, request)
