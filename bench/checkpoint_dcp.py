"""PyTorch's distributed checkpoint (DCP) on CPU, for bench/checkpoint.c: as much state, in as many writers, same disk.

    python bench/checkpoint_dcp.py FOLDER MEGABYTES RANKS ROUNDS

Every rank is a process, and holds a third of its bytes as weights and as each of two moments. DCP's own defaults: one
thread and one file per rank, with fsync; no checksums. Prints MB/s of save and load (into tensors that are there, files
not in the page cache), and the seconds for which async_save keeps its caller: as it is called by default, when it
allocates its copy each time, and with a stager that keeps the copy. The best of the rounds counts. Says so and does
nothing where torch is absent.
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
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
except ImportError:
    print("dcp    skipped: this python has no torch, or one without its stagers")
    sys.exit()


def forget(path):
    for name in glob.glob(f"{path}/*"):
        file = os.open(name, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def timed(work):
    """Seconds from when all ranks begin until all are done."""
    dist.barrier()
    start = time.monotonic()
    result = work()
    dist.barrier()
    return time.monotonic() - start, result


def stall_of(state, path, **settings):
    seconds, pending = timed(lambda: dcp.async_save(state, checkpoint_id=path, **settings))
    pending.result()
    return seconds


def rank_main(rank, folder, megabytes, ranks, rounds, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    # The thread of async_save has collectives of its own; in one group with the barriers here they would deadlock.
    background = dist.new_group(backend="gloo")
    stager = DefaultStager(StagingOptions(False, False, False, False))
    elements = megabytes * 1000000 // 12 // ranks
    state = {f"{part}.{rank}": torch.arange(elements, dtype=torch.float32)
             for part in ("weights", "first_moment", "second_moment")}
    path = f"{folder}/dcp"
    best = {}
    for _ in range(rounds):
        seconds = {"save": timed(lambda: dcp.save(state, checkpoint_id=path))[0]}
        forget(path)
        seconds["load"] = timed(lambda: dcp.load(state, checkpoint_id=path))[0]
        seconds["stall"] = stall_of(state, f"{path}-async", process_group=background)
        seconds["kept"] = stall_of(state, f"{path}-kept", process_group=background, async_stager=stager)
        dist.barrier()
        if rank == 0:
            for name in glob.glob(f"{path}*"):
                shutil.rmtree(name)
        dist.barrier()
        best = {key: min(value, best.get(key, value)) for key, value in seconds.items()}
    if rank == 0:
        print(f"dcp    save {megabytes / best['save']:7.0f} MB/s, load {megabytes / best['load']:7.0f} MB/s, no checksums "
              f"compared\n"
              f"dcp    stall {best['stall']:.4f} s of async_save, {best['kept']:.4f} s where the copy's memory is kept "
              f"(torch {torch.__version__}, gloo)", flush=True)
    stager.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    where, size, writers, times = sys.argv[1], *map(int, sys.argv[2:5])
    torch.multiprocessing.spawn(rank_main, (where, size, writers, times, 29500 + os.getpid() % 1000), nprocs=writers)
