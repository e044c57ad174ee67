/* Launches: what the runtime refuses at the call, and the queueing of the rest. */
#include "block.h"
#include "error.h"
#include "settings.h"
#include "simcuda.h"
#include "stream.h"

#include <cstring>
#include <map>

namespace simcuda {

namespace {

/* Dynamic shared memory that each kernel was allowed beyond what all may have. */
std::map<const void *, size_t> &allowed_shared() {
    static std::map<const void *, size_t> all;
    return all;
}

enum : size_t { ARGUMENT_BYTES = 4096 };

unsigned most_blocks; /* 0: no limit */

cudaError_t check_launch(const kernel_launch &l, size_t argument_bytes) {
    const uint3 g = l.grid, b = l.block;
    if (g.x < 1 || g.y < 1 || g.z < 1 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (b.x < 1 || b.y < 1 || b.z < 1 || b.x > BLOCK_THREADS || b.y > BLOCK_THREADS || b.z > 64 ||
        (uint64_t)b.x * b.y * b.z > BLOCK_THREADS)
        return cudaErrorInvalidConfiguration;
    const auto allowed = allowed_shared().find(l.kernel);
    if (l.shared_bytes > (allowed == allowed_shared().end() ? (size_t)SHARED_LIMIT_UNASKED : allowed->second))
        return cudaErrorInvalidValue;
    return argument_bytes > ARGUMENT_BYTES ? cudaErrorInvalidValue : cudaSuccess;
}

/* "(norm<float>)" as LAUNCH spells it -> "norm<float>". */
std::string plain_name(const char *name) {
    std::string text = name;
    if (text.size() > 2 && text.front() == '(' && text.back() == ')')
        text = text.substr(1, text.size() - 2);
    return text;
}

} // namespace

} // namespace simcuda

using namespace simcuda;

void simcuda_limit_blocks(unsigned blocks) {
    most_blocks = blocks;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
    hold lock;
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || (size_t)value > shared_limit())
        return give(cudaErrorInvalidValue);
    allowed_shared()[kernel] = std::max((size_t)value, (size_t)SHARED_LIMIT_UNASKED);
    return cudaSuccess;
}

void simcuda_launch(const char *name, const void *kernel, uint3 grid, uint3 block, size_t shared_bytes,
                    struct CUstream_st *stream, void (*call)(const void *arguments), const void *arguments,
                    size_t argument_bytes) {
    hold lock;
    auto launch = std::make_shared<kernel_launch>();
    launch->name = plain_name(name);
    launch->kernel = kernel;
    launch->grid = grid;
    launch->block = block;
    launch->shared_bytes = shared_bytes;
    launch->call = call;
    launch->arguments.resize((argument_bytes + 7) / 8);
    memcpy(launch->arguments.data(), arguments, argument_bytes);
    if (const cudaError_t error = check_launch(*launch, argument_bytes)) {
        give(error);
        return;
    }
    if (most_blocks != 0 && launch->grid.x > most_blocks)
        launch->grid.x = most_blocks;
    stream_queue(stream, "kernel " + launch->name, [launch] {
        launch_run(*launch, *running_work);
        return true;
    });
}
