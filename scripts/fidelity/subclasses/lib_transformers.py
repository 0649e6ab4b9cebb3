"""transformers, peft and quanto: lazy heads, adapters and quantised layers, moved, trained."""

import copy
import io
import os
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
warnings.filterwarnings("ignore")
import torch  # noqa: E402
from moments import check, digest, kind, watch  # noqa: E402
from torch import nn  # noqa: E402
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM  # noqa: E402

SMALL = {
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
IDS = torch.arange(12).reshape(2, 6)
GPT = {
    "vocab_size": 32,
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": 16,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def steps(model, ids=IDS, count=3):
    """Make steps, and return a digest of all that was learnt."""
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=0.01)
    for _ in range(count):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [digest(p) for p in model.parameters() if p.requires_grad][-3:]


@check
def heads():
    """A lazy head on an encoder."""

    class Classifier(nn.Module):
        """An encoder and a head whose size is found out."""

        def __init__(self):
            super().__init__()
            self.body, self.head = BertModel(BertConfig(**SMALL)), nn.LazyLinear(3)

        def forward(self, ids):
            """Classify by the first token."""
            return self.head(self.body(ids).last_hidden_state[:, 0])

    model = Classifier().eval().to("cpu").double().float()
    return kind(model.head.weight), digest(model(IDS)), kind(model.head)


@check
def learns():
    """Two decoders learn, generate, and are moved to other precisions."""
    found = []
    for model in (
        GPT2LMHeadModel(GPT2Config(**GPT)),
        LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=1)),
    ):
        weights = steps(model.to("cpu"))
        model.eval()
        text = model.generate(IDS[:1, :3], max_new_tokens=4, do_sample=True, pad_token_id=1).tolist()
        found.append((weights, text, digest(model.to(torch.bfloat16)(IDS).logits), model.dtype, model.device))
    return found


@check
def adapters():
    """LoRA, DoRA and IA3 of peft: learnt, merged, saved, loaded."""
    from peft import (
        IA3Config,
        LoraConfig,
        get_peft_model,
        get_peft_model_state_dict,
        set_peft_model_state_dict,
    )

    found = []
    for config in (
        LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True),
        LoraConfig(r=2, target_modules=["c_attn"], use_dora=True, fan_in_fan_out=True),
        IA3Config(target_modules=["c_attn"], feedforward_modules=[], fan_in_fan_out=True),
    ):
        model = get_peft_model(GPT2LMHeadModel(GPT2Config(**GPT)), config).to("cpu")
        weights = steps(model)
        state = get_peft_model_state_dict(copy.deepcopy(model))
        set_peft_model_state_dict(model, state)
        found.append(
            (
                kind(model),
                weights,
                sorted(state)[:2],
                digest(model.eval()(IDS).logits),
                kind(model.merge_and_unload()),
            )
        )
    return found


@check
def quantised():
    """quanto's weights: quantised, frozen, moved, copied, saved."""
    from optimum.quanto import freeze, qfloat8, qint8, quantize

    found = []
    for weights in (qint8, qfloat8):
        try:
            torch.manual_seed(5)
            model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4)).eval()
            quantize(model, weights=weights)
            freeze(model)
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
            for move in (
                lambda m: m.to("cpu"),
                lambda m: m.cpu(),
                copy.deepcopy,
                lambda m: m.to(torch.bfloat16),
            ):
                moved = move(model)
                weight = moved[0].weight
                answer = moved(torch.ones(2, 128, dtype=weight.dtype))
                found.append((kind(weight), weight.dtype, digest(weight.dequantize()), digest(answer)))
        except Exception as error:
            found.append(f"{weights} {type(error).__name__} {str(error)[:80]}")
    return found


watch(1000, 500, counted=False)
