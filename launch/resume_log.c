#include "launch/resume_log.h"

#include "launch/metrics.h"
#include "shard/checkpoint_folder.h"

#include <stdio.h>
#include <stdlib.h>

json_t *resume_fields(const resume *r) {
    const json_t *ranks = json_object_get(r->manifest->training, "ranks");
    json_t *fields = json_object(), *path = json_string(r->path);
    json_object_set_new(fields, "step", json_integer(r->at.step));
    json_object_set_new(fields, "from", path != NULL ? path : json_null());
    json_object_set_new(fields, "ranks", json_integer(json_integer_value(ranks)));
    json_object_set(fields, "changes", r->changes);
    return fields;
}

static void print_resume(const resume *r, int64_t superseded) {
    const char *key;
    json_t *values;
    if (r->manifest != NULL)
        printf("resume       %s\n", r->path);
    json_object_foreach(r->changes, key, values) {
        char *was = json_dumps(json_array_get(values, 0), JSON_ENCODE_ANY);
        char *is = json_dumps(json_array_get(values, 1), JSON_ENCODE_ANY);
        printf("changed      %s: %s, was %s\n", key, is, was);
        free(was);
        free(is);
    }
    if (superseded > 0)
        printf("superseded   %lld checkpoint%s of later steps set aside as *%s\n", (long long)superseded,
               superseded == 1 ? "" : "s", CHECKPOINT_SUPERSEDED);
}

bool resume_supersede(const resume *r, const config *c, error *e) {
    char *folder = resume_folder(c);
    int64_t count = 0;
    bool good = checkpoint_supersede(folder, r->at.step, &count, e);
    if (good && r->manifest != NULL)
        good = metrics_supersede(c->output.folder, r->at.step, e);
    free(folder);
    if (good)
        print_resume(r, count);
    return good;
}
