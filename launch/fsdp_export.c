/* fsdp_export: a Hugging Face folder from a checkpoint; or what a checkpoint holds, or whether it is whole. */
#include "launch/export.h"
#include "launch/nearest.h"

#include <stdlib.h>
#include <string.h>

typedef struct request {
    const char *checkpoint, *folder;
    dtype type;
    bool list, verify, help, version;
} request;

static void print_help(void) {
    puts("Makes a Hugging Face folder from a checkpoint of fsdp_train, saved at any number of ranks.\n"
         "\n"
         "  fsdp_export CHECKPOINT DIR [--dtype D]     D: fp32 (default), bf16 or fp16\n"
         "  fsdp_export CHECKPOINT --list              what the checkpoint holds\n"
         "  fsdp_export CHECKPOINT --verify            read all of it; silent when it is whole\n"
         "\n"
         "CHECKPOINT is a folder like out/my/checkpoints/step-00000100. DIR is complete or absent.\n"
         "\n"
         "Exit codes: 0 finished, 1 internal fault, 2 usage, 4 checkpoint or model files.");
}

static bool set_type(const char *text, dtype *type, error *e) {
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t i = 0; text != NULL && i < sizeof types / sizeof *types; i++)
        if (strcmp(text, dtype_name(types[i])) == 0) {
            *type = types[i];
            return true;
        }
    return error_set(e, EXIT_USAGE, "argument --dtype%s%s: takes fp32, bf16 or fp16, after a blank",
                     text != NULL ? " " : "", text != NULL ? text : "");
}

static bool set_option(request *r, const char *option, error *e) {
    static const char *const names[] = {"--list", "--verify", "--dtype", "--help", "--version"};
    bool *const switches[] = {&r->list, &r->verify, NULL, &r->help, &r->version};
    const char *nearest = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (switches[i] != NULL && strcmp(option, names[i]) == 0)
            return *switches[i] = true;
        nearest_consider(option, names[i], &nearest);
    }
    return error_set(e, EXIT_USAGE, "argument %s: unknown option%s%s; see fsdp_export --help", option,
                     nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "");
}

static bool set_path(request *r, const char *path, error *e) {
    if (r->folder != NULL)
        return error_set(e, EXIT_USAGE, "argument %s: one checkpoint and one folder at a time", path);
    *(r->checkpoint == NULL ? &r->checkpoint : &r->folder) = path;
    return true;
}

static bool parse(int count, char **arguments, request *r, error *e) {
    bool good = true, typed = false;
    for (int i = 1; good && i < count; i++) {
        if (strcmp(arguments[i], "--dtype") == 0) {
            typed = true;
            good = set_type(i + 1 < count ? arguments[i + 1] : NULL, &r->type, e);
            i++;
        } else
            good = arguments[i][0] == '-' ? set_option(r, arguments[i], e) : set_path(r, arguments[i], e);
    }
    if (!good || r->help || r->version)
        return good;
    const bool looks = r->list || r->verify;
    if (r->checkpoint == NULL || (r->folder == NULL && !looks))
        return error_set(e, EXIT_USAGE, "%s is missing; see fsdp_export --help",
                         r->checkpoint == NULL ? "CHECKPOINT" : "DIR");
    if (looks && (r->folder != NULL || typed || (r->list && r->verify)))
        return error_set(e, EXIT_USAGE, "--list and --verify stand alone behind CHECKPOINT");
    return true;
}

static bool answer(const request *r, error *e) {
    exported x;
    char *warning = NULL;
    bool good = export_open(r->checkpoint, &x, e);
    if (good && r->list)
        export_list(&x, stdout);
    else if (good && r->verify)
        good = export_verify(&x, e);
    else if (good)
        good = export_write(&x, r->folder, r->type, &warning, e);
    if (good && warning != NULL)
        fprintf(stderr, "fsdp_export: warning: %s\n", warning);
    free(warning);
    export_close(&x);
    return good;
}

int main(int argc, char **argv) {
    error e = {0};
    request r = {.type = DTYPE_F32};
    bool good = parse(argc, argv, &r, &e);
    if (good && r.help)
        print_help();
    else if (good && r.version)
        puts("fsdp_export " FSDP_VERSION);
    else if (good)
        answer(&r, &e);
    if (e.code != 0)
        fprintf(stderr, "fsdp_export: %s\n", e.message);
    return e.code;
}
