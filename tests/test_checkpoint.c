/* Checkpoints: the same values at any number of ranks, group and unit; whatever is damaged is found and named; names in
 * the folder that holds them. */
#include "engine/checked.h"
#include "engine/device/half.h"
#include "shard/checkpoint_folder.h"
#include "shard/file.h"
#include "support/checkpoint_ranks.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

/* ---- savers and loaders ---- */

/* World sizes with all sizes of their shard groups: all ranks is full sharding, one is none, between is hybrid. */
static const int groups[][2] = {{1, 1}, {2, 2}, {2, 1}, {3, 3}, {3, 1}, {4, 4}, {4, 2},
                                {4, 1}, {5, 5}, {5, 1}, {8, 8}, {8, 4}, {8, 2}, {8, 1}};
static const int units[] = {1, 2, 9}; /* parameters together */
enum { GROUPS = sizeof groups / sizeof *groups, UNITS = sizeof units / sizeof *units, LAYOUTS = GROUPS * UNITS };

static rank_layout layout_of(int number) {
    return (rank_layout){groups[number / UNITS][0], groups[number / UNITS][1], units[number % UNITS], false};
}

/* Every layout saves; all groups load what it saved, by turns in all units. */
static void any_ranks_load_what_any_saved(void **state) {
    (void)state;
    for (int saver = 0; saver < LAYOUTS; saver++) {
        test_checkpoint_save(layout_of(saver), "checkpoints", saver + 1);
        char *path = checkpoint_path("checkpoints", saver + 1);
        for (int group = 0; group < GROUPS; group++) {
            const int loader = group * UNITS + (saver + saver / UNITS + group) % UNITS;
            error why = {0};
            if (!test_checkpoint_load(layout_of(loader), path, &why))
                fail_msg("saved by layout %d, loaded by %d: %s", saver, loader, why.message);
        }
        free(path);
    }
}

static void assert_same_file(const char *name) {
    char *paths[] = {memory_format("checkpoints/%s", name), memory_format("copied/%s", name)}, *contents[2];
    size_t bytes[2];
    for (int i = 0; i < 2; i++)
        contents[i] = test_file_read(paths[i], &bytes[i]);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(contents[0], contents[1], bytes[0]);
    for (int i = 0; i < 2; i++) {
        free(contents[i]);
        free(paths[i]);
    }
}

static void a_copy_is_written_as_the_state_was(void **state) {
    (void)state;
    for (int saver = 0; saver < LAYOUTS; saver++) {
        test_checkpoint_save(layout_of(saver), "checkpoints", saver + 1);
        test_checkpoint_save_copied(layout_of(saver), "copied", saver + 1);
        char *folder = checkpoint_path("", saver + 1), *name = memory_format("%s/manifest.json", folder);
        assert_same_file(name);
        for (int file = 0; file < layout_of(saver).group; file++) {
            free(name);
            name = memory_format("%s/shard-%05d.bin", folder, file);
            assert_same_file(name);
        }
        free(name);
        free(folder);
    }
}

/* Padding holds a pattern when it is saved; in the files there is none of it. */
static void padding_is_not_saved(void **state) {
    (void)state;
    test_checkpoint_save((rank_layout){3, 3, 2, false}, "checkpoints", 1);
    for (int rank = 0; rank < 3; rank++) {
        char *path = memory_format("checkpoints/step-00000001/shard-%05d.bin", rank);
        size_t bytes;
        char *content = test_file_read(path, &bytes);
        assert_int_equal(bytes % PIECE_ALIGNMENT, 0);
        for (size_t i = 0; i + 4 <= bytes; i += 4) {
            float value;
            memcpy(&value, content + i, sizeof value);
            assert_true(value >= 0 && value < 1e6f); /* zero between pieces; not so the pattern, a NaN */
        }
        free(content);
        free(path);
    }
}

/* ---- damage ---- */

static const rank_layout small = {2, 2, 2, true};
static const char whole[] = "checkpoints/step-00000001";
static const char first_file[] = "checkpoints/step-00000001/shard-00000.bin";
static const char second_file[] = "checkpoints/step-00000001/shard-00001.bin";
static const char manifest_file[] = "checkpoints/step-00000001/manifest.json";

static void save_two(void) {
    test_checkpoint_save(small, "checkpoints", 1);
    error why = {0};
    if (!test_checkpoint_whole(whole, &why))
        fail_msg("%s", why.message);
}

static void assert_named(const error *why, const char *named) {
    assert_int_equal(why->code, EXIT_MODEL);
    if (strstr(why->message, named) == NULL)
        fail_msg("\"%s\" does not name %s", why->message, named);
}

/* The damage is found, and the message names where; it is not loaded, either. */
static void assert_damaged(const char *named) {
    error looking = {0}, loading = {0};
    assert_false(test_checkpoint_whole(whole, &looking));
    assert_named(&looking, named);
    assert_false(test_checkpoint_load(small, whole, &loading));
    assert_named(&loading, named);
}

static void flip_every_byte(const char *path) {
    const int file = open(path, O_RDWR);
    char byte;
    off_t at = 0;
    for (; pread(file, &byte, 1, at) == 1; at++) {
        const char flipped = (char)(byte ^ (1 << (at % 8)));
        assert_int_equal(pwrite(file, &flipped, 1, at), 1);
        assert_damaged(path);
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
    }
    assert_true(at > 1000);
    close(file);
    error why = {0};
    assert_true(test_checkpoint_load(small, whole, &why));
}

static void every_flipped_byte_is_found(void **state) {
    (void)state;
    save_two();
    flip_every_byte(manifest_file);
    flip_every_byte(first_file);
    flip_every_byte(second_file);
}

static void files_cut_grown_missing_or_swapped_are_found(void **state) {
    (void)state;
    save_two();
    size_t bytes, other_bytes;
    char *content = test_file_read(first_file, &bytes), *other = test_file_read(second_file, &other_bytes);
    test_file_write(first_file, content, bytes - 1);
    assert_damaged(first_file);
    char *longer = memory_allocate(bytes + 1, 1);
    memcpy(longer, content, bytes);
    test_file_write(first_file, longer, bytes + 1);
    assert_damaged(first_file);
    assert_int_equal(unlink(first_file), 0);
    assert_damaged(first_file);
    test_file_write(first_file, other, other_bytes);
    test_file_write(second_file, content, bytes);
    assert_damaged("shard-0000");
    test_file_write(first_file, content, bytes);
    test_file_write(second_file, other, other_bytes);
    test_text_write("checkpoints/step-00000001/stray", "");
    assert_damaged("step-00000001/stray");
    assert_int_equal(unlink("checkpoints/step-00000001/stray"), 0);
    error why = {0};
    assert_true(test_checkpoint_whole(whole, &why));
    free(longer);
    free(content);
    free(other);
}

static void a_cut_manifest_is_found(void **state) {
    (void)state;
    save_two();
    size_t bytes;
    char *content = test_file_read(manifest_file, &bytes);
    for (size_t length = 0; length < bytes; length += 7) {
        test_file_write(manifest_file, content, length);
        assert_damaged(manifest_file);
    }
    free(content);
    assert_int_equal(unlink(manifest_file), 0);
    assert_damaged(manifest_file);
}

/* A manifest that lies, under a checksum that is right. */
static void assert_refused(const char *from, const char *to, const char *complaint) {
    size_t bytes;
    char *content = test_file_read(manifest_file, &bytes), *at = strstr(content, from);
    assert_non_null(at);
    char *text = memory_format("%.*s%s%s", (int)(at - content), content, to, at + strlen(from)), digits[17];
    const size_t prefix = strlen("{\"checksum\":\"0123456789abcdef\",");
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)XXH3_64bits(text + prefix, strlen(text + prefix)));
    memcpy(text + strlen("{\"checksum\":\""), digits, 16);
    test_text_write(manifest_file, text);
    error why = {0};
    assert_false(test_checkpoint_whole(whole, &why));
    if (strstr(why.message, complaint) == NULL)
        fail_msg("\"%s\" is not \"%s\"", why.message, complaint);
    test_file_write(manifest_file, content, bytes);
    free(text);
    free(content);
}

static void no_claim_of_a_manifest_is_believed(void **state) {
    (void)state;
    save_two();
    assert_refused("\"format\":1", "\"format\":2", "format 2; this program reads 1");
    assert_refused("\"step\":1,", "\"step\":-1,", "step: expected a whole number");
    assert_refused("\"step\":1,", "\"step\":1,\"step\":1,", "not valid JSON");
    assert_refused("\"training\":{", "\"training\":7,\"other\":{", "training: expected an object");
    assert_refused("\"name\":\"shard-00000.bin\"", "\"name\":\"../shard-00000.bin\"", "no name for a file");
    assert_refused("\"checksums\":[\"", "\"checksums\":[\"0\",\"", "its checksums do not cover its bytes");
    assert_refused("\"first\":0,\"count\":1,", "\"first\":0,\"count\":9000000000000,", "a piece leaves its file");
    assert_refused("\"weights\":0,", "\"weights\":9223372036854775744,", "a piece leaves its file");
    assert_refused("\"weights\":0,", "\"weights\":4,", "a piece leaves its file");
    assert_refused("\"file\":\"shard-00000.bin\"", "\"file\":\"shard-00007.bin\"", "lies in no file");
    assert_refused("\"shape\":[3]", "\"shape\":[4]", "its pieces leave elements out");
    assert_refused("\"shape\":[3]", "\"shape\":[2]", "its pieces do not follow each other");
    assert_refused("\"shape\":[3]", "\"shape\":[3037000500,3037000500]", "too many elements");
    assert_refused("\"type\":\"F32\"", "\"type\":\"F16\"", "its type is not F32");
    assert_refused("\"units\":[", "\"units\":7,\"x\":[", "units: expected a list");
}

#define ITS_MODEL "; use the model that it was saved with, or another checkpoint"

static void another_model_is_refused(void **state) {
    (void)state;
    save_two();
    char *text;
    size_t bytes;
    error why = {0};
    checkpoint_manifest *m;
    assert_true(checkpoint_manifest_load(whole, &text, &bytes, &m, &why));
    parameter_list *list = test_list_create(1, true);
    assert_true(checkpoint_check_parameters(m, whole, list, &why));
    list->items[3].shape[0] = 14;
    assert_false(checkpoint_check_parameters(m, whole, list, &why));
    assert_string_equal(why.message,
                        "checkpoints/step-00000001: tensor parameter3 is 13 x 17; the model's is 14 x 17" ITS_MODEL);
    list->items[3].shape[0] = 13;
    list->count--;
    why.code = 0;
    assert_false(checkpoint_check_parameters(m, whole, list, &why));
    assert_string_equal(why.message, "checkpoints/step-00000001: holds 5 tensors; the model has 4" ITS_MODEL);
    list->count++;
    list->items[4].name[0] = 'q';
    why.code = 0;
    assert_false(checkpoint_check_parameters(m, whole, list, &why));
    assert_string_equal(why.message,
                        "checkpoints/step-00000001: holds no tensor qarameter4, which the model has" ITS_MODEL);
    test_list_destroy(list);
    checkpoint_manifest_destroy(m);
    free(text);
}

/* ---- the folder ---- */

static void make(const char *name) {
    char *folder = memory_format("checkpoints/%s", name), *file = memory_format("%s/manifest.json", folder);
    assert_true(folder_make(folder));
    test_text_write(file, "{}");
    free(file);
    free(folder);
}

static void assert_steps(const int64_t *wanted, size_t count) {
    int64_t *steps;
    size_t found;
    error why = {0};
    assert_true(checkpoint_steps("checkpoints", &steps, &found, &why));
    assert_int_equal(found, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(steps[i], wanted[i]);
    free(steps);
}

static void names_in_the_folder(void **state) {
    (void)state;
    error why = {0};
    int64_t set_aside;
    assert_steps(NULL, 0); /* no folder */
    make("step-00000002");
    make("step-00000010");
    make("step-100000000");
    make("step-00000030.incomplete");
    make("step-00000040.superseded");
    make("step-7");
    make("other");
    assert_steps((int64_t[]){100000000, 10, 2}, 3);
    assert_true(checkpoint_supersede("checkpoints", 10, &set_aside, &why));
    assert_int_equal(set_aside, 1);
    assert_steps((int64_t[]){10, 2}, 2);
    make("step-100000000");
    assert_true(checkpoint_supersede("checkpoints", 10, &set_aside, &why));
    assert_true(file_exists("checkpoints/step-100000000.superseded"));
    assert_true(file_exists("checkpoints/step-100000000.superseded-2"));
    assert_true(checkpoint_prune("checkpoints", 1, &why));
    assert_steps((int64_t[]){10}, 1);
    assert_false(file_exists("checkpoints/step-00000030.incomplete"));
    assert_false(file_exists("checkpoints/step-00000002"));
    assert_true(file_exists("checkpoints/step-00000040.superseded"));
    assert_true(file_exists("checkpoints/other"));
}

/* A checkpoint of another run may be linked into the folder; it stays whole there. And what cannot be removed does not
 * keep the rest. */
static void links_are_removed_and_not_what_they_lead_to(void **state) {
    (void)state;
    error why = {0};
    make("elsewhere/kept");
    make("step-00000003");
    make("step-00000005.incomplete/which holds a folder");
    make("step-00000006.incomplete");
    make("step-00000007");
    assert_int_equal(symlink("elsewhere/kept", "checkpoints/step-00000002"), 0);
    assert_int_equal(symlink("elsewhere/kept", "checkpoints/step-00000004.incomplete"), 0);
    test_text_write("checkpoints/step-00000008.incomplete", "a file");
    assert_false(checkpoint_prune("checkpoints", 1, &why));
    assert_named(&why, "step-00000005.incomplete/which holds a folder");
    assert_steps((int64_t[]){7}, 1);
    assert_true(file_exists("checkpoints/elsewhere/kept/manifest.json"));
    assert_false(file_exists("checkpoints/step-00000002.incomplete"));
    assert_false(file_exists("checkpoints/step-00000004.incomplete"));
    assert_false(file_exists("checkpoints/step-00000006.incomplete"));
    assert_false(file_exists("checkpoints/step-00000008.incomplete"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(any_ranks_load_what_any_saved),
        TEST_IN_FOLDER(a_copy_is_written_as_the_state_was),
        TEST_IN_FOLDER(padding_is_not_saved),
        TEST_IN_FOLDER(every_flipped_byte_is_found),
        TEST_IN_FOLDER(files_cut_grown_missing_or_swapped_are_found),
        TEST_IN_FOLDER(a_cut_manifest_is_found),
        TEST_IN_FOLDER(no_claim_of_a_manifest_is_believed),
        TEST_IN_FOLDER(another_model_is_refused),
        TEST_IN_FOLDER(names_in_the_folder),
        TEST_IN_FOLDER(links_are_removed_and_not_what_they_lead_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
