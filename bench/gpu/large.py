"""A package of a model of BERT-base's size with random weights, made of a small one where it runs.

Its time does not depend on its weights, and they would not fit into a bundle. What it answers means
nothing; its tokeniser and its contract are those of the package that it was made of.
"""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from bench.gpu.site import Setting
from bench.peers.model import PreparedModel
from contracts.manifest import CONFIG_PYTHON, MANIFEST, MODEL_CONFIG, WEIGHTS
from registry.packages import triton_config
from registry.packages.store import PackageStore

SIZES = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
SMALL_SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
# Run by a Python that has torch: configuration, file of weights.
_WEIGHTS = """
import sys, torch, transformers
from safetensors.torch import save_file
torch.manual_seed(0)
config = transformers.AutoConfig.from_pretrained(sys.argv[1], local_files_only=True)
with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
    model = transformers.AutoModel.from_config(config).half()
save_file({name: value.cpu().contiguous() for name, value in model.state_dict().items()},
          sys.argv[2], metadata={"format": "pt"})
"""


def make(small: PreparedModel, scratch: Path, setting: Setting) -> PreparedModel:
    """The package, in a store of its own below ``scratch``."""
    manifest = small.manifest
    if manifest.packed is None:
        raise ValueError("only a packed package can be made larger")
    sizes = SMALL_SIZES if setting.small else SIZES
    work, made = scratch / "large-work", PreparedModel(scratch / "large-made")
    kept = (WEIGHTS, MODEL_CONFIG, CONFIG_PYTHON, MANIFEST)
    work.mkdir()
    for name in manifest.files:
        if name not in kept and not name.startswith("proof"):
            shutil.copy(small.package / name, work)
    config = json.loads((small.package / MODEL_CONFIG).read_bytes())
    (work / MODEL_CONFIG).write_text(json.dumps({**config, **sizes}), encoding="utf-8")
    python = str(setting.environment() / "bin" / "python")
    subprocess.run([python, "-P", "-c", _WEIGHTS, str(work), str(work / WEIGHTS)], check=True)
    rendered = triton_config.render_packed(
        task=manifest.task, width=sizes["hidden_size"], type_ids=manifest.packed.type_ids, threads=1
    )
    (work / CONFIG_PYTHON).write_text(rendered, encoding="utf-8")
    proof = next(iter(manifest.files.values()))
    files = {
        file.name: proof.model_copy(
            update={
                "sha256": hashlib.sha256(data := file.read_bytes()).hexdigest(),
                "bytes": len(data),
            }
        )
        for file in sorted(work.iterdir())
    }
    outputs = tuple(
        spec.model_copy(
            update={
                "shape": tuple(
                    sizes["hidden_size"] if size == manifest.dimension else size
                    for size in spec.shape
                )
            }
        )
        for spec in manifest.outputs
    )
    changed = {
        "files": files, "dimension": sizes["hidden_size"], "outputs": outputs, "ranges": None,
        "profile": None,
    }  # fmt: skip
    made.store.mkdir(parents=True)
    PackageStore(made.store.absolute().as_uri()).publish(work, manifest.model_copy(update=changed))
    return made
