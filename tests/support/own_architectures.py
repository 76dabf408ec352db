"""Small networks of checkpoints' own code, built as encoders on the Hub that bring theirs are.

``NEO`` is built as NeoBERT is: a table of complex numbers that turn queries and keys, RMS norms,
and xformers' gated layers; ``Exponent`` is the same with an operation that no graph can hold.
``ALIBI`` has no positions, only a bias by distance, and gated layers, as jina-bert-v2 has. What a
file says for ``Own`` is replaced by the name of the shape.
"""

import json
from pathlib import Path
from typing import Any

from registry.convert.graph.own_code import stand_in

CONFIG = """
from transformers import PretrainedConfig

class OwnConfig(PretrainedConfig):
    model_type = "headrace-Own"
    def __init__(self, vocab_size=50, hidden_size=16, num_heads=2, **further):
        super().__init__(**further)
        self.vocab_size, self.hidden_size, self.num_heads = vocab_size, hidden_size, num_heads
"""
_HEAD = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu, gelu
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput, SequenceClassifierOutput
from .configuration_Own import OwnConfig
"""
TURNS = """
import torch

def turns_of(size, places):
    speed = 1.0 / 10000.0 ** (torch.arange(0, size, 2)[: size // 2].float() / size)
    angles = torch.outer(torch.arange(places).float(), speed)
    return torch.polar(torch.ones_like(angles), angles)

def turned(x, turns):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns.contiguous().unsqueeze(2)).flatten(3).type_as(x)
"""
NEO = (
    _HEAD
    + """
from xformers.ops import SwiGLU
from .turns_Own import turned, turns_of

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        self.ffn = SwiGLU(width, 2 * width, width, bias=False)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x, mask, turns):
        rows, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(rows, length, self.heads, -1).chunk(3, dim=-1)
        q, k = turned(q, turns), turned(k, turns)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        mixed = scaled_dot_product_attention(q, k, v, mask.bool())
        x = x + self.wo(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.ffn(self.second(x))

class OwnPreTrained(PreTrainedModel):
    config_class = OwnConfig
    base_model_prefix = "model"
    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.uniform_(-0.02, 0.02)

class Own(OwnPreTrained):
    def __init__(self, config):
        super().__init__(config)
        self.encoder = nn.Embedding(config.vocab_size, config.hidden_size)
        turns = turns_of(config.hidden_size // config.num_heads, 128)
        self.register_buffer("turns", turns, persistent=False)
        self.layers = nn.ModuleList(Block(config) for _ in range(2))
        self.norm = nn.RMSNorm(config.hidden_size)
        self.post_init()
    def get_input_embeddings(self):
        return self.encoder
    def forward(self, input_ids, position_ids=None, attention_mask=None, **_):
        mask = attention_mask.unsqueeze(1).unsqueeze(1)
        mask = mask.repeat(1, self.config.num_heads, attention_mask.size(-1), 1)
        if position_ids is None:
            turns = self.turns[: input_ids.shape[1]].unsqueeze(0)
        else:
            turns = self.turns[position_ids]
        x = self.encoder(input_ids)
        for layer in self.layers:
            x = layer(x, mask, turns)
        return BaseModelOutput(last_hidden_state=self.norm(x))

class OwnLMHead(OwnPreTrained):
    def __init__(self, config):
        super().__init__(config)
        self.model = Own(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()
    def forward(self, input_ids, attention_mask=None, **further):
        found = self.model(input_ids, attention_mask=attention_mask, **further)
        return MaskedLMOutput(logits=self.decoder(found.last_hidden_state))

class OwnForSequenceClassification(OwnPreTrained):
    def __init__(self, config):
        super().__init__(config)
        self.model = Own(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()
    def forward(self, input_ids, position_ids=None, attention_mask=None, return_dict=None):
        found = self.model(input_ids, position_ids, attention_mask).last_hidden_state[:, 0]
        return SequenceClassifierOutput(logits=self.classifier(torch.tanh(self.dense(found))))
"""
)
ALIBI = (
    _HEAD
    + """
class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.wo = nn.Linear(width, width), nn.Linear(2 * width, width)
        self.gated = nn.Linear(width, 4 * width, bias=False)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, bias):
        split = lambda y: y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5 + bias
        mixed = torch.matmul(scores.softmax(-1), v).transpose(1, 2).reshape(x.shape)
        x = self.first(x + self.dense(mixed))
        up, gate = self.gated(x).chunk(2, dim=-1)
        return self.second(x + self.wo(up * gelu(gate)))

class OwnModel(PreTrainedModel):
    config_class = OwnConfig
    def __init__(self, config, **_):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(2))
        self.post_init()
    def get_input_embeddings(self):
        return self.words
    def forward(self, input_ids, attention_mask=None, return_dict=True):
        places = torch.arange(input_ids.shape[1])
        apart = (places[None] - places[:, None]).abs().float()
        slopes = 2.0 ** -torch.arange(1, self.config.num_heads + 1).float()
        lost = (1.0 - attention_mask[:, None, None].float()) * torch.finfo(torch.float32).min
        bias = lost - slopes[None, :, None, None] * apart
        x = self.words(input_ids)
        for layer in self.layers:
            x = layer(x, bias)
        return BaseModelOutput(last_hidden_state=x)
"""
)

CLASSIFIER = "AutoModelForSequenceClassification"
ALIBI_FILES = {"configuration": CONFIG, "modeling": ALIBI}
NEO_FILES = {"configuration": CONFIG, "modeling": NEO, "turns": TURNS}
NEO_CLASSES = {
    "AutoModel": "Own",
    "AutoModelForMaskedLM": "OwnLMHead",
    CLASSIFIER: "OwnForSequenceClassification",
}
SHAPES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "NeoBERT": (NEO_FILES, NEO_CLASSES),
    "Exponent": (
        {**NEO_FILES, "turns": TURNS.replace("pairs * turns", "pairs.exp() * turns")},
        NEO_CLASSES,
    ),
    "Alibi": (ALIBI_FILES, {"AutoModel": "OwnModel"}),
}


def write(folder: Path, shape: str, architecture: str) -> None:
    """Adds code and weights of one of a shape's classes; tokeniser and labels stay."""
    import torch
    import transformers
    from safetensors.torch import save_file

    files, kinds = SHAPES[shape]
    for name, code in files.items():
        (folder / f"{name}_{shape}.py").write_text(code.replace("Own", shape))
    classes = {loader: kind.replace("Own", shape) for loader, kind in kinds.items()}
    loader = next(each for each, kind in classes.items() if kind == architecture)
    said = json.loads((folder / "config.json").read_text())
    auto_map = {each: f"modeling_{shape}.{kind}" for each, kind in classes.items()}
    auto_map["AutoConfig"] = f"configuration_{shape}.{shape}Config"
    said.update(architectures=[architecture], auto_map=auto_map, model_type=f"headrace-{shape}")
    (folder / "config.json").write_text(json.dumps(said))
    own: dict[str, Any] = {"trust_remote_code": True}
    with stand_in(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **own)
        network = getattr(transformers, loader).from_config(config, **own)
    with torch.no_grad():
        for each in network.parameters():
            if each.dim() > 1:  # answers differ from text to text
                each.copy_(torch.randn(each.shape) * 0.3)
    save_file(network.state_dict(), folder / "model.safetensors", {"format": "pt"})
