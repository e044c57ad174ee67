/* The INI reader: what is accepted, and the line that each mistake is reported at. */
#include "engine/checked.h"
#include "launch/ini.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_ini_XXXXXX";

static int enter_folder(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int leave_folder(void **state) {
    (void)state;
    return unlink("config.ini") != 0 || chdir("/") != 0 || rmdir(folder) != 0;
}

static void write_bytes(const char *text, size_t length) {
    FILE *f = fopen("config.ini", "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, length, f), length);
    assert_int_equal(fclose(f), 0);
}

static ini_file read_text(const char *text) {
    error e = {0};
    ini_file file;
    write_bytes(text, strlen(text));
    ini_read("config.ini", &file, &e);
    assert_string_equal(e.message, "");
    return file;
}

static void expect_error(const char *text, size_t length, const char *message) {
    error e = {0};
    ini_file file;
    write_bytes(text, length);
    assert_false(ini_read("config.ini", &file, &e));
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, EXIT_USAGE);
    assert_null(file.entries);
}

/* The entries as "line [section] key=word|word;" */
static void expect_entries(const char *text, const char *expected) {
    ini_file file = read_text(text);
    char *all = memory_copy_string("");
    for (size_t i = 0; i < file.count; i++) {
        const ini_entry *entry = &file.entries[i];
        char *longer = memory_format("%s%d [%s] %s", all, entry->line, entry->section, entry->key ? entry->key : "");
        for (size_t w = 0; w < entry->words.count; w++) {
            char *word = memory_format("%s%c%s", longer, w == 0 ? '=' : '|', entry->words.items[w]);
            free(longer);
            longer = word;
        }
        free(all);
        all = memory_format("%s;", longer);
        free(longer);
    }
    assert_string_equal(all, expected);
    free(all);
    ini_free(&file);
}

static void sections_keys_and_lines(void **state) {
    (void)state;
    expect_entries("[a]\n\nx = 1\n  [ b ]\n\ty=2", "1 [a] ;3 [a] x=1;4 [b] ;5 [b] y=2;");
    expect_entries("", "");
    expect_entries("[a]\r\nx = 1\r\n", "1 [a] ;2 [a] x=1;");
    expect_entries("\xEF\xBB\xBF[a]\nx = 1\n", "1 [a] ;2 [a] x=1;");
    expect_entries("[a]\nx =\n", "1 [a] ;2 [a] x;");
    expect_entries("[a]\nx = k=v\n", "1 [a] ;2 [a] x=k=v;");
    expect_entries("[a]\nx = 1\n[a]\nx = 2\n", "1 [a] ;2 [a] x=1;3 [a] ;4 [a] x=2;");
}

static void comments_start_lines_or_follow_blanks(void **state) {
    (void)state;
    expect_entries("# one\n; two\n  # three\n[a] ; four\nx = 1 # five\ny = a;b#c ;six\nz = #7\n",
                   "4 [a] ;5 [a] x=1;6 [a] y=a;b#c;7 [a] z;");
}

static void words_and_quotes(void **state) {
    (void)state;
    expect_entries("[a]\nx =  one\ttwo   three \n", "1 [a] ;2 [a] x=one|two|three;");
    expect_entries("[a]\nx = \"one two\" \" # no comment\" \"\"\n", "1 [a] ;2 [a] x=one two| # no comment|;");
    expect_entries("[a]\nx = out/\"my run\"/model\n", "1 [a] ;2 [a] x=out/my run/model;");
}

static void lines_have_any_length(void **state) {
    (void)state;
    enum { WORDS = 20000, LENGTH = 8 };
    char *text = memory_allocate(16 + WORDS * LENGTH, 1), *end = stpcpy(text, "[a]\nx =");
    for (int i = 0; i < WORDS; i++)
        end += sprintf(end, " w%06d", i);
    ini_file file = read_text(text);
    assert_int_equal(file.count, 2);
    assert_int_equal(file.entries[1].words.count, WORDS);
    assert_string_equal(file.entries[1].words.items[WORDS - 1], "w019999");
    char *joined = ini_join(&file.entries[1].words);
    assert_string_equal(joined, text + strlen("[a]\nx = "));
    free(joined);
    ini_free(&file);
    free(text);
}

static void mistakes_name_their_line(void **state) {
    (void)state;
#define EXPECT(text, message) expect_error(text, sizeof text - 1, message)
    EXPECT("[a]\n\nword\n", "config.ini:3: word: neither [section] nor key = value");
    EXPECT("x = 1\n", "config.ini:1: x = 1: stands before the first [section]");
    EXPECT("[a\n", "config.ini:1: [a: a section is written [name], alone on its line");
    EXPECT("[a] b\n", "config.ini:1: [a] b: a section is written [name], alone on its line");
    EXPECT("[a]\nx = \"one\ny = 2\n", "config.ini:2: [a] x: a double quote is not closed");
    EXPECT("[a]\nx = 1\0\n", "config.ini:2: holds a zero byte: not a text file");
}

static void files_that_cannot_be_read(void **state) {
    (void)state;
    error e = {0};
    ini_file file;
    assert_false(ini_read("absent.ini", &file, &e));
    assert_string_equal(e.message, "absent.ini: cannot open the config file: No such file or directory");
    e = (error){0};
    assert_false(ini_read("/", &file, &e));
    assert_string_equal(e.message, "/: cannot read the config file: Is a directory");
    assert_int_equal(e.code, EXIT_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_keys_and_lines),  cmocka_unit_test(comments_start_lines_or_follow_blanks),
        cmocka_unit_test(words_and_quotes),         cmocka_unit_test(lines_have_any_length),
        cmocka_unit_test(mistakes_name_their_line), cmocka_unit_test(files_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
