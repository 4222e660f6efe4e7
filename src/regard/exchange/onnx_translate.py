"""Translate lines with an exported model; needs onnxruntime, numpy and sentencepiece:  python translate.py < lines.txt"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import sentencepiece


class OnnxTranslator:
    def __init__(self, folder: str | Path, options: Any = None) -> None:
        self.config: dict[str, Any] = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
        source, self.symbols = json.loads(Path(folder, "vocabulary.json").read_text(encoding="utf-8"))
        self.source_ids, self.target_ids = ({one: id for id, one in enumerate(each)} for each in (source, self.symbols))
        files = [str(Path(folder, one)) for one in ("encoder.onnx", "decoder.onnx", "source.spm", "target.spm")]
        self.encoder, self.decoder = (onnxruntime.InferenceSession(one, options) for one in files[:2])
        self.source, self.target = (sentencepiece.SentencePieceProcessor(model_file=one) for one in files[2:])

    def tokenize(self, line: str) -> list[str]:
        tags = [tag for tag in self.config["tags"] if line.startswith(tag)]  # such as >>fra<<
        tokens = self.source.Encode(line[len("".join(tags)) :].replace("\t", " "), out_type=str)
        return [*tags, *tokens][: self.config["max_source"]]

    def text(self, tokens: list[str]) -> str:  # without NUL and line breaks; U+2581 stands for a space
        return self.target.DecodePieces(list(tokens)).translate({0: None, 10: None, 13: None, 0x2581: " "}).strip()

    def encode(self, sources: list[list[str]]) -> dict[str, Any]:  # mask, keys and values
        unk, ends = self.config["unk"], self.config["source_ends"]
        ids = [[*(self.source_ids.get(one, unk) for one in each), *ends] for each in sources]
        padded = np.array([one + [-1] * (max(map(len, ids)) - len(one)) for one in ids], dtype=np.int64)
        found = self.encoder.run(None, {"ids": padded.clip(0), "mask": (mask := padded >= 0)})
        return {"mask": mask, **{one.name: value for one, value in zip(self.encoder.get_outputs(), found, strict=True)}}

    def decode(self, ids: Any, memory: dict[str, Any], past: list[Any] | None = None) -> list[Any]:  # logits, *past
        inputs = {one.name: one.shape for one in self.decoder.get_inputs() if one.name.startswith("past_")}
        past = past or [np.zeros((len(ids), shape[1], 0, shape[3]), np.float32) for shape in inputs.values()]
        return self.decoder.run(None, {"ids": ids, **memory, **dict(zip(inputs, past, strict=True))})

    def search(self, sources: list[list[str]], limit: int) -> list[list[str]]:  # the likeliest token at each step
        memory, past, eos = self.encode(sources), list[Any](), self.config["eos"]
        outputs = (ids := np.full((len(sources), 1), self.config["start"], dtype=np.int64))[:, :0]
        while outputs.shape[1] < min(limit, self.config["max_length"]) and not (outputs == eos).any(axis=1).all():
            logits, *past = self.decode(ids, memory, past)
            logits[:, -1, self.config["bos"]] = -np.inf
            outputs = np.hstack([outputs, ids := logits[:, -1].argmax(axis=1)[:, None]])
        return [[self.symbols[id] for id in row[: [*row, eos].index(eos)]] for row in outputs.tolist()]


if __name__ == "__main__":
    try:
        (translator := OnnxTranslator(Path(__file__).parent)).search([["?"]], 1)
    except Exception as error:
        sys.exit(f"{Path(__file__).parent} is damaged: {' '.join(f'{type(error).__name__}: {error}'.split())[:300]}")
    for line in (line.decode(errors="replace").rstrip("\r\n") for line in sys.stdin.buffer):
        tokens = translator.tokenize(line) if line.strip() else []
        found = translator.search([tokens], len(tokens) + translator.config["max_extra"])[0] if tokens else []
        sys.stdout.buffer.write(f"{translator.text(found)}\n".encode())
