"""PyTorch FSDP2 on CPU (gloo) beside fsdp_train on the same shapes, one thread per rank: ratios of one run.

    python bench/peers.py [--program build/fsdp_train] [--ranks 1 2] [--steps 8]

Needs torch and transformers (pip install torch transformers), and mpirun for more than one rank of fsdp_train. Shapes:
6 layers, width 384, 6 heads, vocabulary 50257, sequence 256, 4 sequences per rank, fp32, AdamW, clip. Prints a row per
program, shape and number of ranks: tokens per second of all ranks (median of the steps after the second), the largest
resident memory of a rank, and seconds from launch to the end of the first step.
"""
import argparse
import array
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

LAYERS, WIDTH, HEADS, VOCABULARY, SEQUENCE, SEQUENCES = 6, 384, 6, 50257, 256, 4
LLAMA_FEED_FORWARD = 1024
FAMILIES = ("gpt2", "llama")
MEASURES = ("tokens_per_second", "memory", "first_step")


def torch_model(family):
    import transformers
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_layer=LAYERS, n_embd=WIDTH, n_head=HEADS, n_positions=SEQUENCE, vocab_size=VOCABULARY,
            attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, bos_token_id=0, eos_token_id=0))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=LAYERS, hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=LLAMA_FEED_FORWARD,
        max_position_embeddings=SEQUENCE, vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0))


def torch_rank(family, steps, launched):
    """One rank, started with the variables of torch.distributed's env:// method; rank 0 prints a JSON line."""
    import torch
    from torch.distributed.fsdp import fully_shard
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # what a user can do against slow subnormals; fsdp_train does it by itself
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(1)
    model = torch_model(family)
    for block in (model.transformer.h if family == "gpt2" else model.model.layers):
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    generator = torch.Generator().manual_seed(rank)
    seconds = []
    for step in range(steps):
        tokens = torch.randint(VOCABULARY, (SEQUENCES, SEQUENCE + 1), generator=generator)
        start = time.time()
        logits = model(tokens[:, :-1], use_cache=False).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.time() - start)
        if step == 0:
            first = time.time() - launched
    memory = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    torch.distributed.all_reduce(memory, torch.distributed.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"tokens_per_second": world * SEQUENCES * SEQUENCE / statistics.median(seconds[2:]),
                          "memory": memory.item(), "first_step": first}))
    torch.distributed.destroy_process_group()


def run_torch(family, ranks, steps):
    launched, processes = time.time(), []
    for rank in range(ranks):
        environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                                    "MASTER_PORT": "29533", "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen(
            [sys.executable, __file__, "--rank", family, "--steps", str(steps), "--launched", repr(launched)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    outputs = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, outputs):
        if process.returncode:
            sys.exit(errors)
    return json.loads(outputs[0][0].splitlines()[-1])


CONFIG = """[model]
family = {family}
layers = {layers}
width = {width}
heads = {heads}
vocabulary = {vocabulary}
context = {sequence}
{feed_forward}
[data]
train = {folder}/tokens.bin
format = tokens16
[train]
steps = {steps}
global_batch = {batch}
micro_batch = {sequences}
[device]
kind = cpu
threads = 1
[output]
folder = {folder}/out
"""


def write_inputs(folder, family, ranks, steps):
    generator = random.Random(1)
    tokens = array.array("H", (generator.randrange(VOCABULARY) for _ in range(100000)))
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    (folder / "config.ini").write_text(CONFIG.format(
        family=family, layers=LAYERS, width=WIDTH, heads=HEADS, vocabulary=VOCABULARY, sequence=SEQUENCE,
        feed_forward=f"feed_forward = {LLAMA_FEED_FORWARD}" if family == "llama" else "", folder=folder, steps=steps,
        batch=SEQUENCES * ranks, sequences=SEQUENCES))


def run_ours(program, family, ranks, steps):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_inputs(folder, family, ranks, steps)
        launcher = ["mpirun", "-np", str(ranks), "--oversubscribe"] if ranks > 1 else []
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        metrics, first, launched = folder / "out" / "metrics.jsonl", None, time.time()
        process = subprocess.Popen(launcher + [program, str(folder / "config.ini")], env=environment,
                                   stdout=subprocess.DEVNULL)
        while process.poll() is None:
            if first is None and metrics.exists() and len(metrics.read_text().splitlines()) > 1:
                first = time.time() - launched
            time.sleep(0.005)
        if process.returncode or first is None:
            sys.exit(f"{program} ended with {process.returncode}")
        events = [json.loads(line) for line in metrics.read_text().splitlines()]
        events = [event for event in events if event["event"] == "step"]
        return {"tokens_per_second": statistics.median(event["tokens_per_second"] for event in events[2:]),
                "memory": max(event["memory"] for event in events), "first_step": first}


def print_row(name, values, formats):
    print(f"{name:<26}" + "".join(f"{value:>{form}}" for value, form in zip(values, formats)), flush=True)


def compare(family, ranks, options):
    theirs = run_torch(family, ranks, options.steps)
    print_row(f"{family} x{ranks} PyTorch", [theirs[key] for key in MEASURES], ["18,.0f", "16,.0f", "14.2f"])
    if options.program:
        ours = run_ours(options.program, family, ranks, options.steps)
        print_row(f"{family} x{ranks} fsdp_train", [ours[key] for key in MEASURES], ["18,.0f", "16,.0f", "14.2f"])
        print_row(f"{family} x{ranks} ratio", [ours[key] / theirs[key] for key in MEASURES], ["18.2f", "16.2f", "14.2f"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rank", help=argparse.SUPPRESS)  # how this script starts PyTorch's ranks
    parser.add_argument("--launched", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        torch_rank(options.rank, options.steps, options.launched)
        return
    print_row("", ["tokens/s", "bytes", "first step s"], ["18", "16", "14"])
    for family in FAMILIES:
        for ranks in options.ranks:
            compare(family, ranks, options)


if __name__ == "__main__":
    main()
