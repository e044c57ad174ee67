/* Writes a token file made by formula (support/formula.h).
 *
 *   tool_tokens FILE VOCABULARY COUNT tokens16|tokens32 [header]
 *
 * header: the 1,024 bytes that [data] format = auto recognises (magic, version 1, count). */
#include "support/formula.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_TOKENS16 = 20240520, MAGIC_TOKENS32 = 20240801, HEADER_WORDS = 256 };

static bool write_tokens(FILE *file, int64_t vocabulary, int64_t count, bool wide, bool header) {
    if (header) {
        int32_t words[HEADER_WORDS] = {wide ? MAGIC_TOKENS32 : MAGIC_TOKENS16, 1, (int32_t)count};
        if (fwrite(words, sizeof words, 1, file) != 1) {
            return false;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t token = formula_token(vocabulary, i);
        uint32_t large = (uint32_t)token;
        uint16_t small = (uint16_t)token;
        if (fwrite(wide ? (void *)&large : (void *)&small, wide ? 4 : 2, 1, file) != 1) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv) {
    bool header = argc == 6 && strcmp(argv[5], "header") == 0;
    bool wide = argc > 4 && strcmp(argv[4], "tokens32") == 0;
    if (!(argc == 5 || header) || !(wide || strcmp(argv[4], "tokens16") == 0)) {
        fprintf(stderr, "usage: tool_tokens FILE VOCABULARY COUNT tokens16|tokens32 [header]\n");
        return 2;
    }
    int64_t vocabulary = strtoll(argv[2], NULL, 10), count = strtoll(argv[3], NULL, 10);
    if (vocabulary < 1 || count < 1 || count > INT32_MAX || (!wide && vocabulary > 65536)) {
        fprintf(stderr, "tool_tokens: vocabulary %s or count %s is out of range\n", argv[2], argv[3]);
        return 2;
    }
    FILE *file = fopen(argv[1], "wb");
    bool written = file && write_tokens(file, vocabulary, count, wide, header);
    if (!file || fclose(file) != 0 || !written) {
        fprintf(stderr, "tool_tokens: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    return 0;
}
