"""PyTorch's distributed checkpoint (DCP) on CPU, for bench/checkpoint.c: as much state, in as many writers, same disk.

    python bench/checkpoint_dcp.py FOLDER MEGABYTES RANKS

Every rank holds a third of its bytes as weights and as each of two moments. Prints a line: MB/s of save (with fsync)
and load (into tensors that are there, files not cached), and the seconds for which async_save keeps its caller; best of
three. Says so and does nothing where torch is absent.
"""
import glob
import os
import shutil
import sys
import time

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
except ImportError:
    print("dcp    skipped: this python has no torch")
    sys.exit()


def forget(path):
    for name in glob.glob(f"{path}/*"):
        file = os.open(name, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def timed(work):
    dist.barrier()
    start = time.monotonic()
    result = work()
    dist.barrier()
    return time.monotonic() - start, result


def rank_main(rank, folder, megabytes, ranks, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    elements = megabytes * 1000000 // 12 // ranks
    state = {f"{part}.{rank}": torch.arange(elements, dtype=torch.float32)
             for part in ("weights", "first_moment", "second_moment")}
    best = {}
    for number in range(3):
        path = f"{folder}/dcp-{number}"
        seconds = {"save": timed(lambda: dcp.save(state, checkpoint_id=path))[0]}
        forget(path)
        seconds["load"] = timed(lambda: dcp.load(state, checkpoint_id=path))[0]
        seconds["stall"], pending = timed(lambda: dcp.async_save(state, checkpoint_id=f"{path}-async"))
        pending.result()
        dist.barrier()
        if rank == 0:
            shutil.rmtree(path)
            shutil.rmtree(f"{path}-async")
        best = {key: min(value, best.get(key, value)) for key, value in seconds.items()}
    if rank == 0:
        print(f"dcp    save {megabytes / best['save']:.0f} MB/s, load {megabytes / best['load']:.0f} MB/s, "
              f"stall of async_save {best['stall']:.3f} s: torch {torch.__version__}, gloo", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    where, size, writers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.multiprocessing.spawn(rank_main, (where, size, writers, 29500 + os.getpid() % 1000), nprocs=writers)
