#include "support/folder.h"

#include "engine/checked.h"
#include "engine/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int test_folder_enter(void **state) {
    char *folder = memory_copy_string("/tmp/fsdp_test_XXXXXX");
    *state = folder;
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

int test_folder_leave(void **state) {
    char *command = memory_format("rm -rf '%s'", (char *)*state);
    int result = chdir("/") != 0 || system(command) != 0;
    free(command);
    free(*state);
    return result;
}

void test_file_write(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    check(file != NULL, "%s", path);
    bool written = fwrite(bytes, 1, count, file) == count;
    check(fclose(file) == 0 && written, "%s", path);
}

void test_text_write(const char *path, const char *text) {
    test_file_write(path, text, strlen(text));
}

char *test_file_read(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    check(file != NULL && fseek(file, 0, SEEK_END) == 0, "%s", path);
    *count = (size_t)ftell(file);
    rewind(file);
    char *bytes = memory_allocate(*count + 1, 1);
    check(fread(bytes, 1, *count, file) == *count, "%s", path);
    fclose(file);
    return bytes;
}
