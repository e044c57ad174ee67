"""Makes the golden values of the parity cases: 20 AdamW steps of transformers' own GPT-2 and Llama in fp64.

    python make.py [CASE ...]        needs numpy, torch, transformers; writes CASE.json beside this script
    python make.py --stored [CASE ...]    CASE-bf16.json and CASE-fp16.json: the same steps with 16-bit storage

Running the tests needs none of this. The fp64 reference replaces what transformers computes in fp32 even in a double
model: rotary angles, RMSNorm, and the softmax of Llama's eager attention (sdpa is used, which keeps the type). The same
run in PyTorch's fp32, all as transformers has it, gives the "fp32" entries: what rounding alone does.

With 16-bit storage the model is transformers' own, parameters, activations and gradients in bf16 or fp16, around fp32
master weights as PyTorch's FSDP keeps them: every step rounds the masters into the model, and widens its gradients for
clipping and AdamW. In fp16 the loss is multiplied by 1024 for the backward pass, which changes nothing but what would
be too small for fp16.
"""
import configparser
import json
import math
import pathlib
import sys

import numpy as np
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRMSNorm

import formula

HERE = pathlib.Path(__file__).parent
SAMPLES = 60  # elements kept of each tensor


def read_cases():
    common = configparser.ConfigParser()
    common.read(HERE / "parity.ini")
    cases = {}
    for line in (HERE / "cases.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, _, model, run = (column.strip() for column in line.split("|"))
        shape = dict(pair.split("=") for pair in model.split())
        settings = {f"{section}.{key}": common[section][key] for section in common.sections() for key in common[section]}
        settings.update(pair.split("=") for pair in run.split())
        cases[name] = (shape, settings)
    return cases


def transformers_config(shape):
    number = lambda key, default=None: int(shape.get(key, default))
    tied = shape["tied"] == "yes"
    if shape["family"] == "gpt2":
        return transformers.GPT2Config(
            n_layer=number("layers"), n_embd=number("width"), n_head=number("heads"), vocab_size=number("vocabulary"),
            n_positions=number("context"), n_inner=number("feed_forward", 4 * number("width")), tie_word_embeddings=tied,
            attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, bos_token_id=0, eos_token_id=0)
    rope = {"rope_type": "default", "rope_theta": float(shape.get("rope_theta", 10000))}
    if "rope_factor" in shape:
        rope |= {"rope_type": "llama3", "factor": float(shape["rope_factor"]),
                 "low_freq_factor": float(shape["rope_low_frequency_factor"]),
                 "high_freq_factor": float(shape["rope_high_frequency_factor"]),
                 "original_max_position_embeddings": number("rope_original_context")}
    return transformers.LlamaConfig(
        num_hidden_layers=number("layers"), hidden_size=number("width"), num_attention_heads=number("heads"),
        num_key_value_heads=number("kv_heads"), head_dim=number("head_width"), vocab_size=number("vocabulary"),
        intermediate_size=number("feed_forward"), max_position_embeddings=number("context"), rms_norm_eps=1e-5,
        rope_parameters=rope, tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0)


def rotary_frequencies(shape):
    """theta^(-2j/D), and Llama 3's change for wavelengths beyond the original context, in fp64."""
    width = int(shape["head_width"])
    frequency = float(shape.get("rope_theta", 10000)) ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    if "rope_factor" not in shape:
        return frequency
    factor, low, high, original = (float(shape["rope_" + key]) for key in (
        "factor", "low_frequency_factor", "high_frequency_factor", "original_context"))
    turns = original * frequency / (2 * math.pi)  # full turns within the original context
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequency * (kept + (1 - kept) / factor)


class ExactRotary(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.frequencies = rotary_frequencies(shape)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].to(torch.float64) * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class ExactNorm(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


def make_model(shape, dtype):
    config = transformers_config(shape)
    config._attn_implementation = "sdpa" if dtype == torch.float64 else "eager"
    family = transformers.GPT2LMHeadModel if shape["family"] == "gpt2" else transformers.LlamaForCausalLM
    model = family(config).to(dtype)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(torch.from_numpy(formula.weights(name, tuple(parameter.shape))))
    if dtype == torch.float64 and shape["family"] == "llama":
        ours, theirs = rotary_frequencies(shape), model.model.rotary_emb.inv_freq.double()
        assert ((ours - theirs).abs() <= 1e-6 * ours).all(), "rotary frequencies are not transformers'"
        model.model.rotary_emb = ExactRotary(shape)
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, LlamaRMSNorm):
                    setattr(parent, name, ExactNorm(child))
    return model


def learning_rate(settings, step):
    """The schedule of INTERFACE: step counts from 0."""
    rate, least = float(settings["optimizer.learning_rate"]), float(settings["optimizer.minimum_learning_rate"])
    warmup, steps = int(settings["optimizer.warmup"]), int(settings["train.steps"])
    if step < warmup:
        return rate * (step + 1) / warmup
    return least + (rate - least) * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def stored_gradients(model, masters, loss, scale):
    """Backward in the model's storage; the masters get the gradients in their own."""
    for parameter in model.parameters():
        parameter.grad = None
    (loss * scale).backward()
    for master, parameter in zip(masters, model.parameters()):
        master.grad = parameter.grad.to(master.dtype) / scale


def train(shape, settings, dtype):
    """dtype: of everything; with 16 bits masters and optimizer are fp32."""
    torch.manual_seed(0)
    model = make_model(shape, torch.float32 if dtype.itemsize == 2 else dtype)
    masters = [torch.nn.Parameter(p.detach().clone()) for p in model.parameters()]
    scale = 1024 if dtype == torch.float16 else 1
    model = model.to(dtype)
    steps, batch, length = (int(settings[f"train.{key}"]) for key in ("steps", "global_batch", "sequence"))
    stream = torch.from_numpy(formula.tokens(steps * batch * length + 1, int(shape["vocabulary"])))
    matrices = [p for p in masters if p.dim() >= 2]
    vectors = [p for p in masters if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": float(settings["optimizer.weight_decay"])},
         {"params": vectors, "weight_decay": 0.0}],
        betas=tuple(float(b) for b in settings["optimizer.betas"].split()), eps=float(settings["optimizer.epsilon"]))
    losses, norms = [], []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings, step)
        first = step * batch * length
        tokens = stream[first:first + batch * length].view(batch, length)
        targets = stream[first + 1:first + batch * length + 1]
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters()):
                parameter.copy_(master)
        logits = model(tokens, use_cache=False).logits
        logits = logits.float() if dtype.itemsize == 2 else logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets)
        stored_gradients(model, masters, loss, scale)
        norms.append(float(torch.nn.utils.clip_grad_norm_(masters, float(settings["optimizer.clip"]))))
        optimizer.step()
        losses.append(loss.item())
    names = [name for name, _ in model.named_parameters()]
    with torch.no_grad():
        for master, parameter in zip(masters, model.parameters()):
            parameter.copy_(master)
        logits = model(stream[None, :length], use_cache=False).logits[0].double()
    return losses, norms, {n: p.detach().double().numpy() for n, p in zip(names, masters)}, logits.numpy()


def sample_stride(shape):
    """About SAMPLES elements, no column favoured."""
    stride = max(1, math.prod(shape) // SAMPLES)
    while math.gcd(stride, shape[-1]) > 1:
        stride += 1
    return stride


def compact(values):
    return [float(f"{v:.9g}") for v in np.ravel(values)]


def compared(name, value):
    """The elements of a tensor that are compared. A key's bias adds the same to all scores of a query, so that its
    gradient is zero but for rounding, which AdamW scales up to whole steps: the middle third of GPT-2's c_attn.bias
    says nothing and is left out (shortened to the query's part and the value's part, one after the other)."""
    flat = value.ravel()
    if name.endswith("c_attn.bias"):
        query, _, values = np.split(flat, 3)
        flat = np.concatenate((query, values))
    return flat


def weight_entry(name, value):
    flat, initial = compared(name, value), compared(name, formula.weights(name, value.shape))
    stride = sample_stride(value.shape)
    return {"elements": value.size, "norm": float(np.linalg.norm(flat)),
            "change": float(np.linalg.norm(flat - initial)),
            "projection": float(flat @ formula.signs(name, flat.size)),
            "stride": stride, "sample": compact(flat[::stride])}


def logits_entry(logits):
    positions = sorted({0, len(logits) // 2, len(logits) - 1})
    stride = 1 if logits.shape[1] < 1000 else 1009
    return {"positions": positions, "stride": stride, "values": [compact(logits[p, ::stride]) for p in positions]}


def largest(ratios):
    return float(f"{max(ratios):.2g}")


def make(name, shape, settings):
    losses, norms, weights, logits = train(shape, settings, torch.float64)
    losses32, norms32, weights32, logits32 = train(shape, settings, torch.float32)
    compared_weights = {n: compared(n, w) for n, w in weights.items()}
    differences = {n: np.linalg.norm(w - compared(n, weights32[n])) for n, w in compared_weights.items()}
    total = math.sqrt(sum(np.linalg.norm(w) ** 2 for w in compared_weights.values()))
    rounding = {
        "loss": largest(abs(a - b) / b for a, b in zip(losses32, losses)),
        "gradient_norm": largest(abs(a - b) / b for a, b in zip(norms32, norms)),
        "weights": largest([math.sqrt(sum(d * d for d in differences.values())) / total]),
        "tensor": largest(d / np.linalg.norm(weights[n]) for n, d in differences.items()),
        "logits": largest([np.abs(logits32 - logits).max() / np.abs(logits).max()])}
    golden = {"case": name, "made_with": f"PyTorch {torch.__version__}, transformers {transformers.__version__}",
              "fp32": rounding, "loss": losses, "gradient_norm": norms,
              "weights": {n: weight_entry(n, w) for n, w in weights.items()}, "logits": logits_entry(logits)}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items() if key != "weights"]
    tensors = [f"  {json.dumps(n)}: {json.dumps(entry)}" for n, entry in golden["weights"].items()]
    text = "{\n" + ",\n".join(lines) + ',\n "weights": {\n' + ",\n".join(tensors) + "\n }\n}\n"
    (HERE / f"{name}.json").write_text(text)
    worst = sorted(((d / np.linalg.norm(weights[n]), n) for n, d in differences.items()), reverse=True)[:3]
    print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, norms {min(norms):.3f} to {max(norms):.3f}, {rounding}", worst)


def distance(weights, exact):
    """Of all compared elements together, relative."""
    pairs = [(compared(n, weights[n]), compared(n, exact[n])) for n in exact]
    return math.sqrt(sum(np.linalg.norm(w - e) ** 2 for w, e in pairs) / sum(np.linalg.norm(e) ** 2 for _, e in pairs))


def make_stored(name, shape, settings):
    exact_losses, exact_norms, exact, _ = train(shape, settings, torch.float64)
    for storage, dtype in ("bf16", torch.bfloat16), ("fp16", torch.float16):
        losses, norms, weights, _ = train(shape, settings, dtype)
        stored = {"case": name, "storage": storage,
                  "made_with": f"PyTorch {torch.__version__}, transformers {transformers.__version__}",
                  "from_fp64": {"loss": largest(abs(a - b) / b for a, b in zip(losses, exact_losses)),
                                "gradient_norm": largest(abs(a - b) / b for a, b in zip(norms, exact_norms)),
                                "weights": largest([distance(weights, exact)])},
                  "loss": losses, "gradient_norm": norms}
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in stored.items()]
        (HERE / f"{name}-{storage}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(name, storage, stored["from_fp64"])


STORED_CASES = ["gpt2-tied", "llama-untied"]


def main():
    cases = read_cases()
    if sys.argv[1:2] == ["--stored"]:
        for name in sys.argv[2:] or STORED_CASES:
            make_stored(name, *cases[name])
        return
    for name in sys.argv[1:] or cases:
        make(name, *cases[name])


if __name__ == "__main__":
    main()
