"""Trains a small BART on a grammar of sixty sentences, registers it, and has it translate.

    headrace up                                            # in one terminal
    python examples/translation/translate.py               # in another, with torch and transformers

The model is a real encoder-decoder of two layers that learns in a minute which article and which
ending of an adjective a German noun asks for. It is registered as PyTorch, in the folder that
``save_pretrained`` writes; Headrace exports and compares it.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import mlflow
import torch
from rich.console import Console
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

NAME = "english-german"
HEADRACE = str(Path(sys.executable).with_name("headrace"))
WAIT_SECONDS = 600.0  # a first export installs nothing here, and loads torch
POLL_SECONDS = 1.0
STEPS = 400
POSITIONS = 32
PAD, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
# Article, ending of an adjective after it, noun.
NOUNS: Final = {
    "dog": ("der", "e", "hund"),
    "cat": ("die", "e", "katze"),
    "child": ("das", "e", "kind"),
    "dogs": ("die", "en", "hunde"),
    "cats": ("die", "en", "katzen"),
}
ADJECTIVES: Final = {"small": "klein", "old": "alt", "tired": "müd"}
VERBS: Final = {
    "sleep": ("schläft", "schlafen"),
    "run": ("läuft", "laufen"),
    "eat": ("isst", "essen"),
    "see": ("sieht", "sehen"),
}
SHOWN: Final = (
    "the small dog sleeps",
    "the old cats run",
    "the tired child eats",
)
console = Console(highlight=False)


def sentences() -> Iterator[tuple[str, str]]:
    """Every English sentence of the grammar, with its translation."""
    for noun, adjective, verb in itertools.product(NOUNS, ADJECTIVES, VERBS):
        article, ending, german = NOUNS[noun]
        several = noun.endswith("s")
        english = f"the {adjective} {noun} {verb}{'' if several else 's'}"
        yield english, f"{article} {ADJECTIVES[adjective]}{ending} {german} {VERBS[verb][several]}"


def tokenizer() -> PreTrainedTokenizerFast:
    """A fast tokeniser with a token for each word of both languages."""
    words = sorted({word for pair in sentences() for text in pair for word in text.split()})
    ids = {word: at for at, word in enumerate((PAD, START, END, UNKNOWN, *words))}
    made = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, ids[END])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=PAD, bos_token=START, eos_token=END, unk_token=UNKNOWN,
        model_max_length=POSITIONS,
    )  # fmt: skip


def trained(words: PreTrainedTokenizerFast) -> BartForConditionalGeneration:
    """A BART that has seen all sentences, some hundred times."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more would wait for each other, of a network so small
    config = BartConfig(
        vocab_size=len(words), max_position_embeddings=POSITIONS, d_model=32,
        encoder_layers=1, decoder_layers=1, encoder_ffn_dim=64, decoder_ffn_dim=64,
        encoder_attention_heads=4, decoder_attention_heads=4, dropout=0.0,
        pad_token_id=words.pad_token_id, bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id, decoder_start_token_id=words.eos_token_id,
        forced_eos_token_id=words.eos_token_id,
    )  # fmt: skip
    network = BartForConditionalGeneration(config)
    english, german = zip(*sentences(), strict=True)
    asked = words(list(english), padding=True, return_tensors="pt")
    wanted = words(list(german), padding=True, return_tensors="pt").input_ids
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
    network.train()
    for _ in range(STEPS):
        optimiser.zero_grad()
        network(
            input_ids=asked.input_ids, attention_mask=asked.attention_mask, labels=wanted
        ).loss.backward()
        optimiser.step()
    network.generation_config.num_beams = 1
    return network.eval()


def save(folder: Path) -> Path:
    """Trains the model and writes it as transformers does, with texts to prove it on."""
    words = tokenizer()
    trained(words).save_pretrained(folder)
    words.save_pretrained(folder)
    texts = "\n".join(english for english, _ in sentences())
    (folder / "evaluation_texts.txt").write_text(texts, encoding="utf-8")
    return folder


def request(text: str) -> dict[str, Any]:
    """OpenAI's completions: the prompt is what is translated."""
    return {"model": NAME, "prompt": text, "max_tokens": 16, "temperature": 0}


def shown(text: str, answer: dict[str, Any]) -> str:
    """A line for a sentence."""
    return f"{text:24} {answer['choices'][0]['text'].strip()}"


def main() -> None:
    """Trains, registers, waits and asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tracking-uri", default="http://127.0.0.1:5000", help="MLflow's URL")
    parser.add_argument("--gateway", default="http://127.0.0.1:8080", help="the gateway's URL")
    arguments = parser.parse_args()
    mlflow.set_tracking_uri(arguments.tracking_uri)
    mlflow.set_experiment("translation")
    with tempfile.TemporaryDirectory() as scratch, mlflow.start_run(run_name=NAME) as run:
        mlflow.log_artifacts(str(save(Path(scratch, "model"))), "model")
    client = mlflow.MlflowClient()
    if not client.search_registered_models(f"name='{NAME}'"):
        client.create_registered_model(NAME)
    client.create_model_version(NAME, f"runs:/{run.info.run_id}/model", run.info.run_id)
    wait()
    for text in SHOWN:
        answer = httpx.post(f"{arguments.gateway}/v1/completions", json=request(text), timeout=30)
        console.print(shown(text, answer.raise_for_status().json()))


def wait() -> None:
    """Waits until the endpoint, which is made by itself, has a version that serves."""
    began = time.monotonic()
    while not any(
        each["metadata"]["name"] == NAME and each["status"]["routes"]
        for each in json.loads(command("status", "--json"))["endpoints"]
    ):
        if time.monotonic() - began > WAIT_SECONDS:
            raise SystemExit(f"{NAME} serves no version yet: headrace status {NAME} says why.")
        time.sleep(POLL_SECONDS)


def command(*words: str) -> str:
    """What a command of Headrace's prints; ends this program where it fails."""
    done = subprocess.run([HEADRACE, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"headrace {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
