#include "support/model_folder.h"

#include "engine/checked.h"
#include "models/huggingface.h"
#include "support/formula.h"

#include <stdlib.h>

void formula_values(const parameter *p, int64_t first, int64_t count, float *values) {
    int64_t begin = 0;
    for (int part = 0; part < p->part_count; part++) {
        int64_t end = begin + p->parts[part].rows * p->shape[1];
        for (int64_t i = maximum(first, begin); i < minimum(first + count, end); i++)
            values[i - first] = formula_weight(p->parts[part].name, p->dimensions, i - begin);
        begin = end;
    }
}

bool model_folder_write(const char *folder, const model_shape *shape, dtype type, error *e) {
    model *m = model_create(shape, 1);
    huggingface_writer *writer = NULL;
    bool fine = huggingface_writer_open(folder, shape, &m->list, type, NULL, &writer, e);
    for (int32_t i = 0; fine && i < m->list.count; i++) {
        int64_t count = parameter_elements(&m->list.items[i]);
        float *values = memory_allocate((size_t)count, sizeof *values);
        formula_values(&m->list.items[i], 0, count, values);
        fine = huggingface_write(writer, i, 0, count, values, e);
        free(values);
    }
    if (fine)
        fine = huggingface_writer_finish(writer, e);
    else
        huggingface_writer_abandon(writer);
    model_destroy(m);
    return fine;
}
