/* Safetensors files: values of every type, slices, and each malformed file with its message. */
#include "engine/checked.h"
#include "engine/device/half.h"
#include "shard/safetensors.h"
#include "support/folder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- files made by hand ---- */

/* Length, header and data; `claimed` replaces the header's true length when it isn't 0. */
static void write_file(const char *name, const char *header, uint64_t claimed, const void *data, size_t data_bytes) {
    size_t header_bytes = strlen(header);
    uint64_t length = claimed != 0 ? claimed : header_bytes;
    char *all = memory_allocate(8 + header_bytes + data_bytes, 1);
    memcpy(all, &length, 8);
    memcpy(all + 8, header, header_bytes);
    if (data_bytes > 0)
        memcpy(all + 8 + header_bytes, data, data_bytes);
    test_file_write(name, all, 8 + header_bytes + data_bytes);
    free(all);
}

static safetensors_file *open_fine(const char *name) {
    error e = {0};
    safetensors_file *file = NULL;
    if (!safetensors_open(name, &file, &e))
        fail_msg("%s", e.message);
    return file;
}

static void expect_refused(const char *name, const char *message) {
    error e = {0};
    safetensors_file *file = NULL;
    assert_false(safetensors_open(name, &file, &e));
    assert_null(file);
    assert_string_equal(e.message, message);
    assert_int_equal(e.code, EXIT_MODEL);
}

/* A file whose only fault is its header; 16 bytes of data. */
static void expect_header_refused(const char *header, const char *message) {
    static const char data[16];
    write_file("m", header, 0, data, sizeof data);
    expect_refused("m", message);
}

/* ---- malformed files ---- */

static void test_header_length(void **state) {
    (void)state;
    expect_refused("absent", "absent: cannot open: No such file or directory");
    expect_refused(".", ".: expected a file");
    test_file_write("m", "short", 5);
    expect_refused("m", "m: 5 bytes; a safetensors file has at least 8");
    write_file("m", "{}", 3, NULL, 0);
    expect_refused("m", "m: the header claims 3 bytes; the file has 2 after its length, and 100000000 are the limit");
    write_file("m", "{}", UINT64_MAX, NULL, 0);
    expect_refused("m", "m: the header claims 18446744073709551615 bytes; the file has 2 after its length, and "
                        "100000000 are the limit");
}

static void test_header_text(void **state) {
    (void)state;
    expect_header_refused("{\"a\": ", "m: the header is not valid JSON: unexpected token near end of file");
    expect_header_refused("not JSON", "m: the header is not valid JSON: '[' or '{' expected near 'not'");
    expect_header_refused("[1, 2]", "m: expected the header to be a JSON object");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 16]}, "
                          "\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 16]}}",
                          "m: the header is not valid JSON: duplicate object key near '\"a\"'");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"dtype\": \"I32\", \"shape\": [4], "
                          "\"data_offsets\": [0, 16]}}",
                          "m: the header is not valid JSON: duplicate object key near '\"dtype\"'");
}

static void test_types_and_shapes(void **state) {
    (void)state;
    expect_header_refused("{\"a\": 1}", "m: tensor a: expected \"dtype\" to be a string");
    expect_header_refused("{\"a\": {\"dtype\": \"F33\", \"shape\": [4], \"data_offsets\": [0, 16]}}",
                          "m: tensor a: unknown dtype F33");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"data_offsets\": [0, 16]}}",
                          "m: tensor a: expected \"shape\" to be a list of sizes");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [-4], \"data_offsets\": [0, 16]}}",
                          "m: tensor a: expected \"shape\" to be a list of sizes");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4.0], \"data_offsets\": [0, 16]}}",
                          "m: tensor a: expected \"shape\" to be a list of sizes");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,1,1,1,1,4], \"data_offsets\": [0, 16]}}",
                          "m: tensor a: 9 dimensions; at most 8 can be read");
    /* 2^64 + 4 elements would look like 4 in 64 bits. */
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4294967296, 4294967296], "
                          "\"data_offsets\": [0, 16]}}",
                          "m: tensor a: the product of its shape overflows");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904], "
                          "\"data_offsets\": [0, 16]}}",
                          "m: tensor a: the product of its shape overflows");
}

static void test_offsets(void **state) {
    (void)state;
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4]}}",
                          "m: tensor a: expected \"data_offsets\" to be [begin, end]");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 16, 32]}}",
                          "m: tensor a: expected \"data_offsets\" to be [begin, end]");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [4, 20]}}",
                          "m: tensor a: data_offsets [4, 20] leave the file's 16 data bytes");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [-4, 12]}}",
                          "m: tensor a: data_offsets [-4, 12] leave the file's 16 data bytes");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [16, 0]}}",
                          "m: tensor a: data_offsets [16, 0] leave the file's 16 data bytes");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 12]}}",
                          "m: tensor a: data_offsets hold 12 bytes; its type and shape need 16");
    expect_header_refused("{\"a\": {\"dtype\": \"BF16\", \"shape\": [4], \"data_offsets\": [0, 16]}}",
                          "m: tensor a: data_offsets hold 16 bytes; its type and shape need 8");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [3], \"data_offsets\": [0, 12]}, "
                          "\"b\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [8, 16]}}",
                          "m: tensor b overlaps tensor a");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 16]}, "
                          "\"b\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 16]}}",
                          "m: tensor b overlaps tensor a");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}, "
                          "\"b\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [8, 16]}}",
                          "m: 4 bytes before tensor b belong to no tensor");
    expect_header_refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}",
                          "m: 8 bytes at the end belong to no tensor");
}

/* What a broken download leaves: any prefix of a good file is refused. */
static void test_truncated(void **state) {
    (void)state;
    const float values[4] = {1, 2, 3, 4};
    const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
    write_file("m", header, 0, values, sizeof values);
    size_t bytes = 0;
    char *whole = test_file_read("m", &bytes);
    for (size_t kept = 0; kept < bytes; kept++) {
        test_file_write("m", whole, kept);
        error e = {0};
        safetensors_file *file = NULL;
        assert_false(safetensors_open("m", &file, &e));
        assert_int_equal(e.code, EXIT_MODEL);
    }
    free(whole);
    expect_refused("m", "m: tensor a: data_offsets [0, 16] leave the file's 15 data bytes");
}

static void test_shrunk_while_open(void **state) {
    (void)state;
    const float values[4] = {1, 2, 3, 4};
    write_file("m", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 0, values, sizeof values);
    safetensors_file *file = open_fine("m");
    write_file("m", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 0, values, 8);
    float read[4];
    error e = {0};
    assert_false(safetensors_read(file, safetensors_find(file, "a"), 0, 4, read, &e));
    assert_string_equal(e.message, "m: ends at byte 71, 8 bytes early; was it changed?");
    assert_int_equal(e.code, EXIT_MODEL);
    safetensors_close(file);
}

/* ---- well-formed files ---- */

/* An empty tensor, a single value, and types that are only passed over. */
static void test_unusual_but_right(void **state) {
    (void)state;
    const float values[4] = {1, 2, 3, 4};
    write_file("m",
               "{\"__metadata__\":{\"format\":\"pt\"},"
               "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[2,2],\"data_offsets\":[12,16]},"
               "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
               "\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
               "\"two\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}",
               0, values, sizeof values);
    safetensors_file *file = open_fine("m");
    assert_int_equal(file->count, 4);
    assert_null(safetensors_find(file, "__metadata__"));
    assert_null(safetensors_find(file, "three"));
    assert_false(safetensors_is_float(safetensors_find(file, "mask")));
    const safetensors_entry *one = safetensors_find(file, "one"), *two = safetensors_find(file, "two");
    assert_int_equal(one->dimensions, 0);
    assert_int_equal(two->dimensions, 2);
    float read[2] = {0, 0};
    error e = {0};
    assert_true(safetensors_read(file, one, 0, 1, read, &e));
    assert_true(read[0] == 3);
    assert_true(safetensors_read(file, two, 1, 1, read, &e));
    assert_true(read[0] == 2);
    assert_true(safetensors_read(file, safetensors_find(file, "empty"), 0, 0, read, &e));
    safetensors_close(file);
}

/* The value of 16 bits by the formats' definition, in double: sign, fraction and exponent. */
static double half_by_definition(uint16_t bits, int exponent_bits, int fraction_bits) {
    int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    int fraction = bits & ((1 << fraction_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return fraction != 0 ? NAN : sign * INFINITY;
    return exponent == 0 ? sign * ldexp(fraction, 1 - bias - fraction_bits)
                         : sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static void check_all_halves(const char *type, int exponent_bits, int fraction_bits) {
    enum { VALUES = 65536 };
    uint16_t *bits = memory_allocate(VALUES, sizeof *bits);
    float *values = memory_allocate(VALUES, sizeof *values);
    for (int i = 0; i < VALUES; i++)
        bits[i] = (uint16_t)i;
    char *header = memory_format("{\"a\":{\"dtype\":\"%s\",\"shape\":[65536],\"data_offsets\":[0,131072]}}", type);
    write_file("m", header, 0, bits, VALUES * sizeof *bits);
    safetensors_file *file = open_fine("m");
    error e = {0};
    assert_true(safetensors_read(file, safetensors_find(file, "a"), 0, VALUES, values, &e));
    for (int i = 0; i < VALUES; i++) {
        double expected = half_by_definition((uint16_t)i, exponent_bits, fraction_bits);
        if (isnan(expected) ? !isnan(values[i])
                            : (double)values[i] != expected || (signbit(values[i]) != 0) != (signbit(expected) != 0))
            fail_msg("%s %04x: found %a, expected %a", type, i, (double)values[i], expected);
    }
    safetensors_close(file);
    free(header);
    free(values);
    free(bits);
}

static void test_all_halves(void **state) {
    (void)state;
    check_all_halves("F16", 5, 10);
    check_all_halves("BF16", 8, 7);
}

/* Narrowing to fp16: half-way between neighbours goes to the even one, what is nearer to one goes there; beyond the
 * largest, the next would be 65536. */
static void test_f16_rounding(void **state) {
    (void)state;
    for (uint16_t low = 0; low < 0x7c00; low++) {
        const uint16_t high = (uint16_t)(low + 1);
        const float below = float_from_f16(low), above = high == 0x7c00 ? 65536 : float_from_f16(high);
        const float middle = (below + above) / 2; /* exact: a bit more than the neighbours have */
        for (uint16_t sign = 0; sign < 2; sign++) {
            const float factor = sign == 0 ? 1 : -1;
            const uint16_t bit = (uint16_t)(sign << 15);
            assert_int_equal(f16_from_float(factor * below), bit | low);
            assert_int_equal(f16_from_float(factor * nextafterf(middle, 0)), bit | low);
            assert_int_equal(f16_from_float(factor * middle), bit | (low % 2 == 0 ? low : high));
            assert_int_equal(f16_from_float(factor * nextafterf(middle, 1e30f)), bit | high);
        }
    }
    assert_int_equal(f16_from_float(-INFINITY), 0xfc00);
    assert_true(isnan(float_from_f16(f16_from_float(NAN))));
    assert_true(isnan(float_from_f16(f16_from_float(float_from_bits(0x7f800001u)))));
}

/* Narrowing to bf16 against its definition: no 16-bit neighbour is nearer, and of two equally near the even one. */
static void test_bf16_rounding(void **state) {
    (void)state;
    for (uint32_t high = 0; high < 65536; high++) {
        float below = float_from_bf16((uint16_t)high), above = float_from_bf16((uint16_t)(high + 1));
        bool finite = (high & 0x7f80) != 0x7f80;
        bool nan = isnan(below);
        static const uint32_t lows[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
        for (size_t k = 0; k < sizeof lows / sizeof lows[0]; k++) {
            float value = float_from_bits(high << 16 | lows[k]);
            uint16_t rounded = bf16_from_float(value);
            if (nan || isnan(value)) {
                assert_true(isnan(float_from_bf16(rounded)));
                continue;
            }
            if (!finite) { /* infinity stays */
                assert_int_equal(rounded, high);
                continue;
            }
            bool up = lows[k] > 0x8000 || (lows[k] == 0x8000 && high % 2 == 1);
            assert_int_equal(rounded, high + up);
            double down_error = fabs((double)value - (double)below), up_error = fabs((double)above - (double)value);
            if (isfinite(above))
                assert_true(up ? up_error <= down_error : down_error <= up_error);
        }
    }
}

static void test_f64(void **state) {
    (void)state;
    const double values[4] = {0.1, -1e300, 1e-300, 16777217.0};
    write_file("m", "{\"a\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,32]}}", 0, values, sizeof values);
    safetensors_file *file = open_fine("m");
    float read[4];
    error e = {0};
    assert_true(safetensors_read(file, safetensors_find(file, "a"), 0, 4, read, &e));
    assert_true(read[0] == 0.1f && isinf(read[1]) && read[1] < 0 && read[2] == 0 && read[3] == 16777216.0f);
    safetensors_close(file);
}

/* ---- writing ---- */

enum { ROWS = 301, COLUMNS = 67, BIAS = 5 };

static float sample(int64_t i) {
    return (float)sin((double)i * 0.37) * 3;
}

/* Two tensors, the large one in uneven pieces from its end to its start. */
static void write_sample(const char *path, dtype type) {
    const safetensors_tensor tensors[2] = {{"bias", 1, {BIAS}}, {"matrix", 2, {ROWS, COLUMNS}}};
    safetensors_writer *writer = NULL;
    error e = {0};
    assert_true(safetensors_create(path, tensors, 2, type, &writer, &e));
    float values[ROWS * COLUMNS];
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        values[i] = sample(i);
    for (int64_t end = ROWS * COLUMNS, piece = 1; end > 0; piece = piece * 3 + 1) {
        int64_t count = minimum(piece, end);
        assert_true(safetensors_write(writer, 1, end - count, count, values + end - count, &e));
        end -= count;
    }
    assert_true(safetensors_write(writer, 0, 0, BIAS, values, &e));
    assert_true(safetensors_finish(writer, &e));
    assert_int_equal(e.code, 0);
}

static void check_sample(dtype type) {
    write_sample("w", type);
    safetensors_file *file = open_fine("w");
    const safetensors_entry *matrix = safetensors_find(file, "matrix");
    assert_string_equal(matrix->type, type == DTYPE_F32 ? "F32" : "BF16");
    assert_int_equal(matrix->dimensions, 2);
    assert_int_equal(matrix->shape[0], ROWS);
    assert_int_equal(matrix->shape[1], COLUMNS);
    assert_int_equal(safetensors_find(file, "bias")->position % 8, 0); /* the format's alignment */
    float whole[ROWS * COLUMNS], slice[ROWS * COLUMNS];
    error e = {0};
    assert_true(safetensors_read(file, matrix, 0, ROWS * COLUMNS, whole, &e));
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        assert_true(whole[i] == (type == DTYPE_F32 ? sample(i) : float_from_bf16(bf16_from_float(sample(i)))));
    for (int64_t first = 0; first < ROWS * COLUMNS; first += 997)
        for (int64_t count = 0; first + count <= ROWS * COLUMNS; count = count * 5 + 1) {
            assert_true(safetensors_read(file, matrix, first, count, slice, &e));
            assert_memory_equal(slice, whole + first, (size_t)count * sizeof *slice);
        }
    safetensors_close(file);
}

static void test_round_trip(void **state) {
    (void)state;
    check_sample(DTYPE_F32);
    assert_int_equal(remove("w"), 0);
    check_sample(DTYPE_BF16);
}

/* The same tensors make the same bytes. */
static void test_deterministic(void **state) {
    (void)state;
    write_sample("first", DTYPE_BF16);
    write_sample("second", DTYPE_BF16);
    size_t bytes[2];
    char *first = test_file_read("first", &bytes[0]), *second = test_file_read("second", &bytes[1]);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(first, second, bytes[0]);
    free(first);
    free(second);
}

static void test_write_errors(void **state) {
    (void)state;
    const safetensors_tensor tensor = {"a", 1, {4}};
    safetensors_writer *writer = NULL;
    error e = {0};
    assert_false(safetensors_create("absent/w", &tensor, 1, DTYPE_F32, &writer, &e));
    assert_string_equal(e.message, "absent/w: cannot create: No such file or directory");
    assert_int_equal(e.code, EXIT_MODEL);
    assert_true(e.own);
    e = (error){0};
    test_file_write("w", "", 0);
    assert_false(safetensors_create("w", &tensor, 1, DTYPE_F32, &writer, &e));
    assert_string_equal(e.message, "w: cannot create: File exists");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(test_header_length),
        TEST_IN_FOLDER(test_header_text),
        TEST_IN_FOLDER(test_types_and_shapes),
        TEST_IN_FOLDER(test_offsets),
        TEST_IN_FOLDER(test_truncated),
        TEST_IN_FOLDER(test_shrunk_while_open),
        TEST_IN_FOLDER(test_unusual_but_right),
        TEST_IN_FOLDER(test_all_halves),
        cmocka_unit_test(test_f16_rounding),
        cmocka_unit_test(test_bf16_rounding),
        TEST_IN_FOLDER(test_f64),
        TEST_IN_FOLDER(test_round_trip),
        TEST_IN_FOLDER(test_deterministic),
        TEST_IN_FOLDER(test_write_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
