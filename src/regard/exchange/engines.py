"""The engines that exports are made for, in a process that cannot import regard. This file is run as a script:

    python -I engines.py REQUEST RESULT

REQUEST is a JSON file: the engine, its folder, lines to translate, and outputs to score. RESULT is written as JSON, with the
logits of some lines next to it (RESULT.npz). Symbols of vocabularies stand for ids, which differ between engines.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BATCH = 32  # lines that are translated together
Tokens = list[list[str]]


class Blocked:
    """A finder of modules that refuses regard, wherever it is installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] == "regard":
            raise ImportError("regard is blocked in this process")


def regard_is_missing() -> bool:
    """Return whether `import regard` fails."""
    try:
        __import__("regard")
    except ImportError:
        return True
    return False


class CTranslate2:
    packages = ("ctranslate2", "sentencepiece")

    def __init__(self, request: dict[str, Any]) -> None:
        import ctranslate2
        import sentencepiece

        folder, threads = request["folder"], request["threads"]
        # Weights that are stored in float16 are converted: CTranslate2 computes in float16 on GPUs only.
        kind = "float32" if request["weights"] == "float16" else request["weights"]
        options = {"compute_type": kind, "inter_threads": 1, "intra_threads": threads}
        self.translator = ctranslate2.Translator(folder, device="cpu", **options)
        self.source = sentencepiece.SentencePieceProcessor(model_file=str(Path(folder, "source.spm")))
        self.target = sentencepiece.SentencePieceProcessor(model_file=str(Path(folder, "target.spm")))
        self.never = [[request["start"]]]
        names = (Path(folder, f"{side}_vocabulary.json") for side in ("shared", "source"))
        self.symbols = set(json.loads(next(filter(Path.exists, names)).read_text(encoding="utf-8")))

    def tokenize(self, lines: Sequence[str]) -> Tokens:
        # A tag in front of a source, such as >>fra<<, is a token that users give.
        found = [re.match(r">>[^\s<>]+<<|", line)[0] for line in lines]  # type: ignore[index]
        tags = [tag if tag in self.symbols else "" for tag in found]
        split = self.source.Encode([line[len(tag) :] for line, tag in zip(lines, tags, strict=True)], out_type=str)
        return [[tag, *tokens] if tag else tokens for tag, tokens in zip(tags, split, strict=True)]

    def text(self, tokens: Sequence[str]) -> str:
        return self.target.DecodePieces(list(tokens)).replace("\u2581", " ").strip()

    def translate(self, sources: Tokens, *, beam: int, penalty: float, limit: int) -> Tokens:
        found = self.translator.translate_batch(
            sources,
            beam_size=beam,
            length_penalty=penalty,
            max_decoding_length=limit,
            min_decoding_length=0,
            max_input_length=0,
            max_batch_size=BATCH,
            suppress_sequences=self.never,
        )
        return [one.hypotheses[0] for one in found]

    def score(self, sources: Tokens, targets: Tokens) -> list[list[float]]:
        found = self.translator.score_batch(sources, targets, max_input_length=0, max_batch_size=BATCH)
        return [list(one.log_probs) for one in found]


class HuggingFace:
    packages = ("transformers", "tokenizers", "torch", "safetensors", "sentencepiece")

    def __init__(self, request: dict[str, Any]) -> None:
        import torch
        import transformers

        torch.set_num_threads(request["threads"])
        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        # Nothing is downloaded, and no file that could run code is read.
        options: dict[str, Any] = {"local_files_only": True, "use_safetensors": True}
        self.torch = torch
        self.model: Any = transformers.MarianMTModel.from_pretrained(request["folder"], **options)
        self.model.train(False)
        self.tokenizer = transformers.MarianTokenizer.from_pretrained(request["folder"], local_files_only=True)
        config = self.model.config
        self.pad, self.eos, self.start = config.pad_token_id, config.eos_token_id, config.decoder_start_token_id
        tokenizer = self.tokenizer
        self.source_ids = tokenizer.encoder
        self.target_ids = tokenizer.target_encoder if tokenizer.separate_vocabs else tokenizer.encoder
        self.columns = [self.target_ids[symbol] for symbol in request["symbols"]]

    def tokenize(self, lines: Sequence[str]) -> Tokens:
        symbols = {id: symbol for symbol, id in self.source_ids.items()}
        return [[symbols[id] for id in ids if id != self.eos] for ids in self.tokenizer(list(lines)).input_ids]

    def text(self, tokens: Sequence[str]) -> str:
        return str(self.tokenizer.decode([self.target_ids[one] for one in tokens], skip_special_tokens=True))

    def _batch(self, sources: Tokens) -> dict[str, Any]:
        ids = [[*(self.source_ids[one] for one in each), self.eos] for each in sources]
        longest = max(map(len, ids))
        padded = [[*one, *[self.pad] * (longest - len(one))] for one in ids]
        mask = [[1] * len(one) + [0] * (longest - len(one)) for one in ids]
        return {"input_ids": self.torch.tensor(padded), "attention_mask": self.torch.tensor(mask)}

    def translate(self, sources: Tokens, *, beam: int, penalty: float, limit: int) -> Tokens:
        symbols = {id: symbol for symbol, id in self.target_ids.items()}
        options: dict[str, Any] = {"num_beams": beam, "do_sample": False, "forced_eos_token_id": None}
        if beam > 1:
            options |= {"length_penalty": penalty, "early_stopping": False}
        else:
            options |= {"length_penalty": 1.0, "early_stopping": False}

        def generate(some: Tokens) -> Tokens:
            found = self.model.generate(**self._batch(some), max_length=limit + 1, **options).tolist()
            return [[symbols[id] for id in ids[1:] if id not in (self.pad, self.eos)] for ids in found]

        return by_length(sources, generate)

    def logits(self, source: list[str], target: list[str]) -> Any:
        """Return the logits of each next symbol, in the order of the columns that were asked for."""
        ids = self.torch.tensor([[self.start, *(self.target_ids[one] for one in target)]])
        with self.torch.inference_mode():
            return self.model(**self._batch([source]), decoder_input_ids=ids).logits[0][:, self.columns].numpy()


class Onnx:
    packages = ("onnxruntime", "numpy", "sentencepiece")

    def __init__(self, request: dict[str, Any]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = request["threads"]
        # The loop of our own package: a folder may come from strangers, so that none of its code is run.
        spec = importlib.util.spec_from_file_location("translate", Path(__file__).with_name("onnx_translate.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.engine = module.OnnxTranslator(request["folder"], options)
        self.columns = [self.engine.target_ids[symbol] for symbol in request["symbols"]]

    def tokenize(self, lines: Sequence[str]) -> Tokens:
        return [self.engine.tokenize(line) for line in lines]

    def text(self, tokens: Sequence[str]) -> str:
        return str(self.engine.text(tokens))

    def translate(self, sources: Tokens, *, beam: int, penalty: float, limit: int) -> Tokens:
        assert beam == 1, "the loop is greedy"
        return by_length(sources, lambda some: self.engine.search(some, limit=limit))

    def logits(self, source: list[str], target: list[str]) -> Any:
        """Return the logits of each next symbol, in the order of the columns that were asked for."""
        import numpy as np

        start, ids = self.engine.config["start"], self.engine.target_ids
        prefix = np.array([[start, *(ids[one] for one in target)]], dtype=np.int64)
        return self.engine.decode(prefix, self.engine.encode([source]))[0][0][:, self.columns]


ENGINES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "ctranslate2": CTranslate2,
    "huggingface": HuggingFace,
    "onnx": Onnx,
}


def by_length(sources: Tokens, translate: Callable[[Tokens], Tokens]) -> Tokens:
    """Return the outputs of batches of similar length, in the order of the sources."""
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    found: dict[int, list[str]] = {}
    for at in range(0, len(order), BATCH):
        batch = order[at : at + BATCH]
        found.update(zip(batch, translate([sources[number] for number in batch]), strict=True))
    return [found[number] for number in range(len(sources))]


def log_probabilities(logits_TV: Any, columns: list[int]) -> list[float]:
    """Return the log-probability of one column per row."""
    import numpy as np

    wide = np.asarray(logits_TV, dtype=np.float64)
    top = wide.max(axis=1)
    normalizer = top + np.log(np.exp(wide - top[:, None]).sum(axis=1))
    return [float(value) for value in wide[np.arange(len(columns)), columns] - normalizer]


def answer(request: dict[str, Any], result_path: Path) -> dict[str, Any]:
    """Return what the engine says to a request."""
    engine = ENGINES[request["engine"]](request)
    result: dict[str, Any] = {
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in engine.packages},
        }
    }
    sources, limit = engine.tokenize([line.replace("\t", " ") for line in request["lines"]]), request["limit"]
    result["sources"] = sources
    engine.translate(sources[:4], beam=1, penalty=0.0, limit=limit)  # what is computed once only is not timed
    began = time.perf_counter()
    result["greedy"] = engine.translate(sources, beam=1, penalty=0.0, limit=limit)
    result["seconds"] = time.perf_counter() - began
    result["texts"] = [engine.text(tokens) for tokens in result["greedy"]]
    if request["beam"] > 1:
        beams = {"beam": request["beam"], "penalty": request["penalty"]}
        result["beams"] = engine.translate(sources, limit=limit, **beams)
    if isinstance(engine, CTranslate2):
        result["scores"] = engine.score(sources, request["targets"])
        return result
    import numpy as np

    result["scores"], kept = [], {}
    places = {symbol: number for number, symbol in enumerate(request["symbols"])}
    for number, (source, target) in enumerate(zip(sources, request["targets"], strict=True)):
        logits = engine.logits(source, target)
        columns = [places[one] for one in (*target, request["end"])]
        result["scores"].append(log_probabilities(logits, columns))
        if number < request["logits"]:
            kept[str(number)] = np.asarray(logits, dtype=np.float32)
    np.savez(f"{result_path}.npz", **kept)  # type: ignore[arg-type]
    return result


def main() -> None:
    request_path, result_path = map(Path, sys.argv[1:])
    sys.meta_path.insert(0, Blocked())
    if not regard_is_missing():
        raise SystemExit("regard can be imported, so that nothing would be shown")
    result = answer(json.loads(request_path.read_text(encoding="utf-8")), result_path)
    result_path.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
