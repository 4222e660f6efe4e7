"""CTranslate2, an engine on which trained models are commonly deployed, with the weights of the Marian peer."""

import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import ctranslate2
from ctranslate2.specs import TransformerSpec

from workload import BOS, EOS, PAD, UNKNOWN, Sentences, Setup

COMPUTE_TYPES = {
    ("fp32", False): "float32",
    ("fp32", True): "int8_float32",
    ("bf16", False): "bfloat16",
    ("bf16", True): "int8_bfloat16",
}


def vocabulary(size: int) -> list[str]:
    """A name for every id."""
    special = {PAD: "<pad>", EOS: "</s>", BOS: "<s>", UNKNOWN: "<unk>"}
    return [special.get(i, f"w{i}") for i in range(size)]


def fill_linear(spec: Any, *layers: Any) -> None:
    """One matrix for the layers that read the same input, as the engine expects for queries, keys and values."""
    import torch

    spec.weight = torch.cat([layer.weight for layer in layers]).detach().numpy()
    if layers[0].bias is not None:
        spec.bias = torch.cat([layer.bias for layer in layers]).detach().numpy()


def fill_norm(spec: Any, norm: Any) -> None:
    spec.gamma = norm.weight.detach().numpy()
    spec.beta = norm.bias.detach().numpy()


def fill_stack(spec: Any, stack: Any) -> None:
    """An encoder or a decoder; they differ by the attention to the source."""
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = stack.embed_tokens.weight.detach().numpy()
    spec.scale_embeddings = stack.embed_scale
    spec.position_encodings.encodings = stack.embed_positions.weight.detach().numpy()
    for to, layer in zip(spec.layer, stack.layers, strict=True):
        itself = layer.self_attn
        fill_linear(to.self_attention.linear[0], itself.q_proj, itself.k_proj, itself.v_proj)
        fill_linear(to.self_attention.linear[1], itself.out_proj)
        fill_norm(to.self_attention.layer_norm, layer.self_attn_layer_norm)
        if hasattr(layer, "encoder_attn"):
            across = layer.encoder_attn
            fill_linear(to.attention.linear[0], across.q_proj)
            fill_linear(to.attention.linear[1], across.k_proj, across.v_proj)
            fill_linear(to.attention.linear[2], across.out_proj)
            fill_norm(to.attention.layer_norm, layer.encoder_attn_layer_norm)
        fill_linear(to.ffn.linear_0, layer.fc1)
        fill_linear(to.ffn.linear_1, layer.fc2)
        fill_norm(to.ffn.layer_norm, layer.final_layer_norm)


def convert(setup: Setup, folder: str) -> None:
    """Write the Marian peer as a CTranslate2 model. Runs in its own process, so that the engine's memory excludes torch."""
    from systems.marian import build_marian
    from systems.padded import count_parameters

    marian = build_marian(setup)
    spec = TransformerSpec.from_config(setup.layers, setup.heads, pre_norm=False)
    fill_stack(spec.encoder, marian.model.encoder)
    fill_stack(spec.decoder, marian.model.decoder)
    spec.decoder.projection.weight = marian.lm_head.weight.detach().numpy()
    tokens = vocabulary(setup.vocabulary)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.unk_token, spec.config.eos_token = tokens[UNKNOWN], tokens[EOS]
    spec.config.bos_token = spec.config.decoder_start_token = tokens[BOS]
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(folder)
    Path(folder, "parameters.json").write_text(json.dumps(count_parameters(marian)))


class CTranslate2:
    """One batch at a time over all threads, or `parallel`: several batches at once, one thread per batch.

    The engine's manual advises the second for throughput; `ours` and `marian_parallel` work the same way.
    """

    def __init__(self, *, int8: bool = False, parallel: bool = False) -> None:
        self.int8 = int8
        self.parallel = parallel

    def prepare(self, setup: Setup, job: str) -> int:
        assert job == "decode", job
        self.setup = setup
        self.tokens = vocabulary(setup.vocabulary)
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        with tempfile.TemporaryDirectory() as folder:
            process = multiprocessing.get_context("spawn").Process(target=convert, args=(setup, folder))
            process.start()
            process.join()
            assert process.exitcode == 0, process.exitcode
            self.translator = ctranslate2.Translator(
                folder,
                device=setup.device.split(":")[0],
                compute_type=COMPUTE_TYPES[setup.precision, self.int8],
                inter_threads=setup.threads if self.parallel else 1,
                intra_threads=1 if self.parallel else setup.threads,
            )
            parameters: int = json.loads(Path(folder, "parameters.json").read_text())
        return parameters

    def collate(self, batches: list[Sentences]) -> list[list[list[str]]]:
        return [[[self.tokens[i] for i in [*ids, EOS]] for ids in batch.sources] for batch in batches]

    def decode_round(self, batches: list[list[list[str]]], beam: int) -> tuple[float, list[list[list[int]]]]:
        options = {
            "beam_size": beam,
            "min_decoding_length": self.setup.output,
            "max_decoding_length": self.setup.output,
        }
        began = time.perf_counter()
        if self.parallel:
            pending = [self.translator.translate_batch(batch, asynchronous=True, **options) for batch in batches]
            outputs = [[row.result() for row in rows] for rows in pending]
        else:
            outputs = [self.translator.translate_batch(batch, **options) for batch in batches]
        seconds = time.perf_counter() - began
        return seconds, [[[self.ids[t] for t in row.hypotheses[0]] for row in output] for output in outputs]
