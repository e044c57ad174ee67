#include "launch/device_choice.h"

#include "engine/checked.h"
#include "engine/device/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool open_cuda(const device_settings *settings, device **opened, error *e) {
    const device_module *module = NULL;
    if (!device_module_load(&module, e) || !module->device->open(settings, opened, e))
        return false;
    (*opened)->communication = module->communication;
    return true;
}

/* What simulates a GPU is never taken unasked. */
static bool open_real_cuda(const device_settings *settings, device **opened, error *e) {
    const device_module *module = NULL;
    if (!device_module_load(&module, e))
        return false;
    if (module->simulated)
        return error_set(e, EXIT_LAUNCH, "this program was built with a simulated CUDA device");
    return open_cuda(settings, opened, e);
}

static bool open_best(const device_settings *settings, device **opened, char **warning, error *e) {
    error why = {0};
    if (!device_module_driver())
        return device_cpu.open(settings, opened, e);
    if (open_real_cuda(settings, opened, &why))
        return true;
    *warning = memory_format("device.kind = auto takes the CPU: %s", why.message);
    return device_cpu.open(settings, opened, e);
}

static bool open_kind(int kind, const device_settings *settings, device **opened, char **warning, error *e) {
    switch (kind) {
    case CONFIG_DEVICE_CPU:
        return device_cpu.open(settings, opened, e);
    case CONFIG_DEVICE_CUDA:
        return open_cuda(settings, opened, e);
    default:
        return open_best(settings, opened, warning, e);
    }
}

/* ---- what the ranks have, side by side ---- */

typedef struct introduction {
    char kind[16], identity[64];
} introduction;

static introduction introduce(const device *d) {
    introduction mine;
    const char *identity = d->functions->identity(d);
    memset(&mine, 0, sizeof mine);
    snprintf(mine.kind, sizeof mine.kind, "%s", d->functions->name);
    snprintf(mine.identity, sizeof mine.identity, "%s", identity != NULL ? identity : "");
    return mine;
}

static bool check_kinds(const world *w, const introduction *all, error *e) {
    for (int r = 0; r < w->size; r++)
        if (strcmp(all[r].kind, all[0].kind) != 0)
            return error_set(e, EXIT_LAUNCH,
                             "rank %d computes on %s and rank 0 on %s: all must have the same kind of device; set "
                             "device.kind, or leave out the nodes that differ",
                             r, all[r].kind, all[0].kind);
    return true;
}

/* The lower rank that has the same GPU; -1: none has. */
static int sharer_of(const world *w, const introduction *all, int rank) {
    for (int r = 0; r < rank && all[rank].identity[0] != '\0'; r++)
        if (w->node_of[r] == w->node_of[rank] && strcmp(all[r].identity, all[rank].identity) == 0)
            return r;
    return -1;
}

/* The first rank that shares its GPU with a lower one; -1: none does. */
static int first_sharer(const world *w, const introduction *all) {
    for (int r = 0; r < w->size; r++)
        if (sharer_of(w, all, r) >= 0)
            return r;
    return -1;
}

static bool check_shared(const config *c, const world *w, const introduction *all, error *e) {
    const int r = first_sharer(w, all);
    if (r < 0 || c->device.share == CONFIG_YES)
        return true;
    return error_set(
        e, EXIT_LAUNCH,
        "ranks %d and %d would share one GPU: their node has fewer GPUs than ranks; start one rank for each "
        "GPU (nvidia-smi -L lists them), or set device.share = yes to try more ranks, slowly",
        sharer_of(w, all, r), r);
}

static bool check_together(const config *c, world *w, device *mine, char **warning, error *e) {
    const introduction own = introduce(mine);
    introduction *all = memory_allocate((size_t)w->size, sizeof *all);
    world_all_gather(w, &own, sizeof own, all);
    const bool good = check_kinds(w, all, e) && check_shared(c, w, all, e);
    if (good && first_sharer(w, all) >= 0) {
        mine->communication = NULL;
        *warning = memory_format("ranks share a GPU, so what they exchange goes through the host's memory: slow");
    }
    free(all);
    return good;
}

static void close_again(device **opened) {
    if (*opened != NULL)
        (*opened)->functions->close(*opened);
    *opened = NULL;
}

bool device_choose(const config *c, world *w, int threads, int gpu, device **opened, char **warning, error *e) {
    const device_settings settings = {.threads = threads, .number = gpu};
    *opened = NULL;
    *warning = NULL;
    open_kind(c->device.kind, &settings, opened, warning, e);
    if (world_agree(w, e)) {
        check_together(c, w, *opened, warning, e);
        if (world_agree(w, e))
            return true;
    }
    close_again(opened);
    return false;
}

bool device_choose_to_plan(const config *c, device **opened, error *e) {
    const device_settings settings = {.threads = 1, .planning = true};
    char *warning = NULL;
    const bool good = open_kind(c->device.kind, &settings, opened, &warning, e);
    free(warning);
    return good;
}
