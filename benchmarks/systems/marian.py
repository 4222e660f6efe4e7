"""Hugging Face MarianMTModel with random weights: its hub's translation model, trained and decoded with its own code."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from systems.padded import (
    INIT_STD,
    PaddedBatch,
    PaddedTrainer,
    configure_torch,
    count_parameters,
    synchronize,
)
from workload import BOS, EOS, PAD, Setup


def build_marian(setup: Setup) -> Any:
    """Build the model; the same setup gives the same weights in every process."""
    torch.manual_seed(setup.seed)
    config = MarianConfig(
        vocab_size=setup.vocabulary,
        d_model=setup.width,
        encoder_layers=setup.layers,
        decoder_layers=setup.layers,
        encoder_attention_heads=setup.heads,
        decoder_attention_heads=setup.heads,
        encoder_ffn_dim=setup.hidden,
        decoder_ffn_dim=setup.hidden,
        activation_function="relu",
        dropout=setup.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        max_position_embeddings=max(setup.longest, setup.output) + 2,
        init_std=INIT_STD,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config)
    model.set_attn_implementation("sdpa")
    return model


class Marian(PaddedTrainer):
    """Marian; with `parallel` it decodes several batches at once, one thread per batch, as we do."""

    def __init__(self, *, compiled: bool = False, parallel: bool = False) -> None:
        super().__init__(compiled=compiled)
        self.parallel = parallel
        self.lanes: ThreadPoolExecutor | None = None

    def prepare(self, setup: Setup, job: str) -> int:
        if job == "train":
            return super().prepare(setup, job)
        configure_torch(setup)
        self.setup = setup
        dtype = torch.bfloat16 if setup.precision == "bf16" else torch.float32
        self.model = build_marian(setup).to(setup.device, dtype).eval()
        if self.parallel:
            self.lanes = ThreadPoolExecutor(setup.threads, initializer=torch.set_num_threads, initargs=(1,))
        return count_parameters(self.model)

    def build(self, setup: Setup) -> nn.Module:
        model: nn.Module = build_marian(setup)
        return model

    def logits(self, batch: PaddedBatch) -> Tensor:
        # No mask for the target, as when the library is given labels: padding is last and the loss skips it.
        output = self.model(
            input_ids=batch.source,
            attention_mask=batch.source != PAD,
            decoder_input_ids=batch.target_in,
            use_cache=False,
        )
        logits: Tensor = output.logits
        return logits

    def decode_round(self, batches: list[PaddedBatch], beam: int) -> tuple[float, list[list[list[int]]]]:
        options = GenerationConfig(  # type: ignore[no-untyped-call]
            num_beams=beam,
            do_sample=False,
            use_cache=True,
            min_new_tokens=self.setup.output,
            max_new_tokens=self.setup.output,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
        )

        @torch.inference_mode()
        def generate(batch: PaddedBatch) -> Tensor:
            output: Tensor = self.model.generate(  # type: ignore[operator]
                input_ids=batch.source, attention_mask=batch.source != PAD, generation_config=options
            )
            return output

        synchronize(self.setup.device)
        began = time.perf_counter()
        outputs = list((self.lanes.map if self.lanes else map)(generate, batches))
        synchronize(self.setup.device)
        seconds = time.perf_counter() - began
        return seconds, [output[:, 1:].tolist() for output in outputs]  # without the begin token
