/* The simulated cuBLASLt (tests/simcuda/cublaslt.c) takes what the library's documentation allows and refuses the rest:
 * epilogues with their types, leading dimensions and pointers. That what it takes is computed right is gpu_matmul.c's
 * matter. */
#include "simcuda.h"

#include <cublasLt.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 8, COLUMNS = 16, DEPTH = 24 };

/* A product of ROWS x DEPTH with DEPTH x COLUMNS as it would be asked for; zeros: DEPTH, all in fp32, plain. */
typedef struct request {
    cublasLtEpilogue_t epilogue;
    cudaDataType input, output;
    int64_t rows, depth, aux_leading;
    int32_t transpose_a;
} request;

static void must(cublasStatus_t status) {
    assert_int_equal(status, CUBLAS_STATUS_SUCCESS);
}

static int64_t or_else(int64_t value, int64_t standard) {
    return value != 0 ? value : standard;
}

typedef struct descriptors {
    cublasLtHandle_t library;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
} descriptors;

static void describe(descriptors *x, const request *r) {
    const int64_t rows = or_else(r->rows, ROWS), depth = or_else(r->depth, DEPTH);
    const int64_t high = r->transpose_a == CUBLAS_OP_N ? rows : depth;
    must(cublasLtCreate(&x->library));
    must(cublasLtMatmulDescCreate(&x->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    must(cublasLtMatmulDescSetAttribute(x->product, CUBLASLT_MATMUL_DESC_TRANSA, &r->transpose_a, sizeof(int32_t)));
    must(cublasLtMatmulDescSetAttribute(x->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &r->epilogue, sizeof(uint32_t)));
    must(cublasLtMatmulDescSetAttribute(x->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &r->aux_leading,
                                        sizeof(int64_t)));
    must(cublasLtMatrixLayoutCreate(&x->a, r->input, (uint64_t)high, (uint64_t)(rows + depth - high), high));
    must(cublasLtMatrixLayoutCreate(&x->b, r->input, (uint64_t)depth, COLUMNS, depth));
    must(cublasLtMatrixLayoutCreate(&x->d, r->output, (uint64_t)rows, COLUMNS, rows));
    must(cublasLtMatmulPreferenceCreate(&x->preference));
}

static cublasStatus_t choose(descriptors *x) {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(x->library, x->product, x->a, x->b, x->d, x->d, x->preference, 1, &x->best,
                                          &found);
}

static void destroy(descriptors *x) {
    must(cublasLtMatmulPreferenceDestroy(x->preference));
    must(cublasLtMatrixLayoutDestroy(x->a));
    must(cublasLtMatrixLayoutDestroy(x->b));
    must(cublasLtMatrixLayoutDestroy(x->d));
    must(cublasLtMatmulDescDestroy(x->product));
    must(cublasLtDestroy(x->library));
}

static cublasStatus_t asked(request r) {
    descriptors x;
    describe(&x, &r);
    const cublasStatus_t status = choose(&x);
    destroy(&x);
    return status;
}

static void epilogues(void **state) {
    (void)state;
    static const cublasLtEpilogue_t taken[] = {CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                                               CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
                                               CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                               CUBLASLT_EPILOGUE_BGRADA};
    static const cudaDataType types[][2] = {
        {CUDA_R_32F, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_16F, CUDA_R_16F}};
    for (size_t e = 0; e < sizeof taken / sizeof *taken; e++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            must(asked((request){.epilogue = taken[e], .input = types[t][0], .output = types[t][1], .aux_leading = 8}));
    assert_int_equal(asked((request){.epilogue = (cublasLtEpilogue_t)(CUBLASLT_EPILOGUE_BIAS | 2)}),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(asked((request){.epilogue = CUBLASLT_EPILOGUE_DEFAULT, .output = CUDA_R_16F}),
                     CUBLAS_STATUS_NOT_SUPPORTED);
}

static void leading_dimensions_of_what_a_gelu_is_taken_of(void **state) {
    (void)state;
    const cublasLtEpilogue_t kept = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    must(asked((request){.epilogue = kept, .aux_leading = ROWS + 8}));
    assert_int_equal(asked((request){.epilogue = kept}), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(asked((request){.epilogue = kept, .aux_leading = ROWS + 4}), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(asked((request){.epilogue = kept, .rows = 12, .aux_leading = 8}), CUBLAS_STATUS_INVALID_VALUE);
}

static void bias_gradients(void **state) {
    (void)state;
    const cublasLtEpilogue_t sums = CUBLASLT_EPILOGUE_BGRADA;
    must(asked((request){.epilogue = sums, .depth = 2}));
    assert_int_equal(asked((request){.epilogue = sums, .depth = 1}), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(asked((request){.epilogue = sums, .transpose_a = CUBLAS_OP_T}), CUBLAS_STATUS_NOT_SUPPORTED);
}

/* ---- pointers ---- */

typedef struct execution {
    descriptors x;
    float *memory; /* on the device */
    cublasStatus_t status;
} execution;

/* A, B, D, the bias or sums and what a gelu is taken of, a piece of memory for each. */
enum { PIECE = 4096 / sizeof(float), PIECES = 5 };

static void execute(void *state) {
    execution *e = state;
    const float one = 1, zero = 0;
    float *a = e->memory, *b = a + PIECE, *d = b + PIECE;
    e->status = cublasLtMatmul(e->x.library, e->x.product, &one, a, e->x.a, b, e->x.b, &zero, d, e->x.d, d, e->x.d,
                               &e->x.best.algo, NULL, 0, NULL);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
}

static void point(const execution *e, cublasLtMatmulDescAttributes_t which, const float *to) {
    must(cublasLtMatmulDescSetAttribute(e->x.product, which, (const void *)&to, sizeof to));
}

/* Pointers that are absent are refused; one that is less aligned than what the algorithm was chosen for is a misuse. */
static void pointers(void **state) {
    (void)state;
    const request r = {.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS, .aux_leading = ROWS};
    execution e;
    void *memory;
    char report[256] = "";
    assert_int_equal(cudaMalloc(&memory, PIECES * PIECE * sizeof(float)), cudaSuccess);
    assert_int_equal(cudaMemset(memory, 0, PIECES * PIECE * sizeof(float)), cudaSuccess);
    e.memory = memory;
    describe(&e.x, &r);
    must(choose(&e.x));
    execute(&e);
    assert_int_equal(e.status, CUBLAS_STATUS_INVALID_VALUE);
    point(&e, CUBLASLT_MATMUL_DESC_BIAS_POINTER, e.memory + 3 * PIECE);
    execute(&e);
    assert_int_equal(e.status, CUBLAS_STATUS_INVALID_VALUE);
    point(&e, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, e.memory + 4 * PIECE);
    execute(&e);
    must(e.status);
    point(&e, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, e.memory + 4 * PIECE + 1);
    assert_true(simcuda_catch(execute, &e, report, sizeof report));
    assert_non_null(strstr(report, "auxiliary output"));
    must(choose(&e.x)); /* of an algorithm for that pointer it is none */
    execute(&e);
    must(e.status);
    destroy(&e.x);
    assert_int_equal(cudaFree(memory), cudaSuccess);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(epilogues),
                                       cmocka_unit_test(leading_dimensions_of_what_a_gelu_is_taken_of),
                                       cmocka_unit_test(bias_gradients), cmocka_unit_test(pointers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
