#include "engine/device/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const PLACES[] = {"libfsdp_cuda.so", "../lib/fsdp_train/libfsdp_cuda.so"};
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };

typedef struct module_path {
    char text[PATH_MAX + 64];
} module_path;

/* Beside the program, whatever the directory that it was started in. */
static module_path path_of(const char *place) {
    char program[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (slash != NULL)
        *slash = '\0';
    module_path path;
    snprintf(path.text, sizeof path.text, "%s/%s", program, place);
    return path;
}

static bool find(module_path *found, error *e) {
    for (int i = 0; i < PLACE_COUNT; i++) {
        *found = path_of(PLACES[i]);
        if (access(found->text, R_OK) == 0)
            return true;
    }
    return error_set(e, EXIT_LAUNCH,
                     "this program was built without its CUDA device: there is no %s, nor one installed in "
                     "../lib/fsdp_train; build with -DFSDP_CUDA=toolkit where nvcc and NCCL are installed, or use "
                     "device.kind = cpu",
                     path_of(PLACES[0]).text);
}

bool device_module_load(const device_module **loaded, error *e) {
    static const device_module_interface expected = DEVICE_MODULE_INTERFACE;
    module_path path;
    if (!find(&path, e))
        return false;
    void *library = dlopen(path.text, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return error_set_own(e, EXIT_LAUNCH,
                             "cannot load the CUDA device: %s; cuBLASLt and NCCL must be installed here, or found "
                             "through LD_LIBRARY_PATH",
                             dlerror());
    const device_module *module = dlsym(library, "fsdp_device_module");
    if (module == NULL || memcmp(&module->interface, &expected, sizeof expected) != 0)
        return error_set(e, EXIT_LAUNCH, "%s belongs to another build of this program; install both from one build",
                         path.text);
    *loaded = module;
    return true;
}

bool device_module_driver(void) {
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0; /* Linux; Windows' Linux */
}
