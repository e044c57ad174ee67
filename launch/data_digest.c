#include "launch/data_digest.h"

#include "engine/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { BLOCKS = 64, BLOCK_BYTES = 4096 };

/* Short files as a whole; of long ones, the first block, the last, and those between at equal distances. */
static uint64_t sample(const token_file *f) {
    if (f->bytes <= (int64_t)BLOCKS * BLOCK_BYTES)
        return XXH3_64bits(f->map, (size_t)f->bytes);
    XXH3_state_t *state = XXH3_createState();
    check(state != NULL && XXH3_64bits_reset(state) == XXH_OK, "no state for a checksum");
    const int64_t distance = (f->bytes - BLOCK_BYTES) / (BLOCKS - 1);
    for (int64_t b = 0; b < BLOCKS; b++)
        XXH3_64bits_update(state, f->map + (b < BLOCKS - 1 ? b * distance : f->bytes - BLOCK_BYTES), BLOCK_BYTES);
    const uint64_t sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return sum;
}

json_t *data_digest(const data *d) {
    const token_stream *s = data_training_stream(d);
    json_t *files = json_array();
    for (int32_t i = 0; i < s->count; i++) {
        const token_file *f = &s->files[i];
        const char *slash = strrchr(f->path, '/');
        char digits[17];
        snprintf(digits, sizeof digits, "%016" PRIx64, sample(f));
        json_t *name = json_string(slash != NULL ? slash + 1 : f->path), *file = json_object();
        json_object_set_new(file, "name", name != NULL ? name : json_null()); /* JSON holds UTF-8 only */
        json_object_set_new(file, "bytes", json_integer(f->bytes));
        json_object_set_new(file, "sample", json_string(digits));
        json_array_append_new(files, file);
    }
    return files;
}
