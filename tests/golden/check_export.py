"""Does transformers compute from an exported model what the golden run computed? Not run by CTest.

    python check_export.py CASE FOLDER      FOLDER: what fsdp_train wrote for the case, OUT/model

Loads the folder in double precision and compares logits of the first window. Prints the largest difference relative to
the largest logit; 1e-5 is what training in fp32 explains.
"""
import json
import pathlib
import sys

import numpy as np
import torch
import transformers

import formula


def main(case, folder):
    golden = json.loads((pathlib.Path(__file__).parent / f"{case}.json").read_text())["logits"]
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="sdpa", output_loading_info=True)
    unused = {kind: names for kind, names in report.items() if names}
    if unused:
        sys.exit(f"{folder}: {unused}")
    length = golden["positions"][-1] + 1
    tokens = torch.from_numpy(formula.tokens(length, model.config.vocab_size))
    with torch.no_grad():
        logits = model(tokens[None], use_cache=False).logits[0].double().numpy()
    ours = logits[golden["positions"], ::golden["stride"]]
    difference = np.abs(ours - golden["values"]).max() / np.abs(golden["values"]).max()
    print(f"{case}: logits differ by {difference:.1e}")
    sys.exit(not difference <= 1e-5)


if __name__ == "__main__":
    main(*sys.argv[1:])
