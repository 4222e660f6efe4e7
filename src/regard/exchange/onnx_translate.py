"""Translate lines with an exported model; needs onnxruntime, numpy and sentencepiece:  python translate.py < lines.txt"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import sentencepiece


class OnnxTranslator:
    def __init__(self, folder: str | Path, threads: int = 0) -> None:
        path, options = Path(folder), onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads  # 0: all cores
        self.config: dict[str, Any] = json.loads((path / "config.json").read_text(encoding="utf-8"))
        source, self.symbols = json.loads((path / "vocabulary.json").read_text(encoding="utf-8"))
        self.source_ids, self.target_ids = ({one: id for id, one in enumerate(each)} for each in (source, self.symbols))
        self.encoder = onnxruntime.InferenceSession(str(path / "encoder.onnx"), options)
        self.decoder = onnxruntime.InferenceSession(str(path / "decoder.onnx"), options)
        self.source = sentencepiece.SentencePieceProcessor(model_file=str(path / "source.spm"))
        self.target = sentencepiece.SentencePieceProcessor(model_file=str(path / "target.spm"))

    def tokenize(self, line: str) -> list[str]:
        return self.source.Encode(line.replace("\t", " "), out_type=str)[: self.config["max_source"]]

    def text(self, tokens: list[str]) -> str:
        return self.target.DecodePieces(list(tokens)).replace("\u2581", " ").strip()

    def encode(self, sources: list[list[str]]) -> dict[str, Any]:  # mask, keys and values
        end, unknown = [self.config["eos"]] * self.config["source_eos"], self.config["unk"]
        ids = [[*(self.source_ids.get(one, unknown) for one in each), *end] for each in sources]
        mask = np.array([[at < len(one) for at in range(max(map(len, ids)))] for one in ids])
        padded = np.array([one + [0] * (mask.shape[1] - len(one)) for one in ids], dtype=np.int64)
        names = [output.name for output in self.encoder.get_outputs()]
        return {"mask": mask, **dict(zip(names, self.encoder.run(None, {"ids": padded, "mask": mask}), strict=True))}

    def decode(self, ids: Any, memory: dict[str, Any], past: Any = None) -> tuple[Any, Any]:  # logits, past
        inputs = {one.name: one.shape for one in self.decoder.get_inputs() if one.name.startswith("past_")}
        past = past or [np.zeros((len(ids), shape[1], 0, shape[3]), np.float32) for shape in inputs.values()]
        logits, *past = self.decoder.run(None, {"ids": ids, **memory, **dict(zip(inputs, past, strict=True))})
        return logits, past

    def search(self, sources: list[list[str]], limit: int) -> list[list[str]]:  # the likeliest token at each step
        memory, past, eos = self.encode(sources), None, self.config["eos"]
        ids = np.full((len(sources), 1), self.config["start"], dtype=np.int64)
        outputs = ids[:, :0]
        while outputs.shape[1] < limit and not (outputs == eos).any(axis=1).all():
            logits, past = self.decode(ids, memory, past)
            logits[:, -1, self.config["bos"]] = -np.inf
            outputs = np.hstack([outputs, ids := logits[:, -1].argmax(axis=1)[:, None]])
        return [[self.symbols[id] for id in row[: [*row, eos].index(eos)]] for row in outputs.tolist()]


if __name__ == "__main__":
    translator = OnnxTranslator(Path(__file__).parent)
    for tokens in map(translator.tokenize, sys.stdin.read().splitlines()):
        found = translator.search([tokens], len(tokens) + translator.config["max_extra"])[0] if tokens else []
        print(translator.text(found))
