/* cuBLASLt on the host: D = alpha op(A) op(B) + beta C + bias for column-major matrices, or the gelu of that with what
 * it is taken of beside it, or with the sums of op(A)'s rows beside it; queued on a stream.
 *
 * What the library's documentation refuses, this refuses with the same status: shapes that do not fit, type
 * combinations outside its table, a leading dimension that an epilogue cannot have, an algorithm chosen for another
 * product; so it does what other programs' tests of the library know it to refuse: sums of a transposed A, and of a
 * single column. What would be undefined there (an operand
 * less aligned than was promised when the algorithm was chosen, a workspace that is absent or too small) is a misuse
 * and ends the run. An algorithm wants a workspace of a size that the seed picks, and scribbles over it: two products
 * that share a workspace without an order between them are then seen as any two writers are. */
#include "engine/device/half.h"
#include "simcuda.h"

#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Of a workspace everything up to SCRIBBLE is written, and then the first bytes of each piece of STRIDE: wherever
 * others keep tensors of theirs, which start at such pieces. */
enum { SCRIBBLE = 4096, STRIDE = 256, STROKE = 2 };

struct simcuda_blas {
    int unused;
};
struct simcuda_blas_product {
    cublasComputeType_t compute;
    int32_t transpose_a, transpose_b;
    uint32_t epilogue;
    void *bias;        /* or where its gradient goes */
    int32_t bias_type; /* -1: as D */
    void *aux;
    int64_t aux_leading;
};
struct simcuda_blas_layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t leading;
};
struct simcuda_blas_preference {
    uint64_t workspace;
    uint32_t alignment[4]; /* A, B, C, D */
};

/* What an algorithm was chosen for; the contents of cublasLtMatmulAlgo_t. */
typedef struct choice {
    uint64_t product; /* digest of everything but pointers */
    uint64_t workspace;
    uint32_t alignment[4];
    uint32_t alignment_bias, alignment_aux; /* of the pointers that were set then */
} choice;
_Static_assert(sizeof(choice) <= sizeof(cublasLtMatmulAlgo_t), "a choice is kept in the opaque algorithm");

const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown status";
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return cublasLtGetStatusName(status);
}

/* ---- descriptors ---- */

/* A new object with the bytes of `contents`. */
static cublasStatus_t create(void *created, const void *contents, size_t bytes) {
    void *object = malloc(bytes);
    if (object == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(object, contents, bytes);
    memcpy(created, &object, sizeof object);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(void *object) {
    free(object);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    const struct simcuda_blas library = {0};
    return create(handle, &library, sizeof library);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return destroy(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, cublasComputeType_t compute,
                                        cudaDataType scale) {
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const struct simcuda_blas_product contents = {
        .compute = compute, .epilogue = CUBLASLT_EPILOGUE_DEFAULT, .bias_type = -1};
    return create(product, &contents, sizeof contents);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    return destroy(product);
}

static cublasStatus_t take(void *field, size_t size, const void *value, size_t bytes) {
    if (value == NULL || bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes) {
    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&product->transpose_a, sizeof product->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(&product->transpose_b, sizeof product->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&product->epilogue, sizeof product->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&product->bias, sizeof product->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return take(&product->aux, sizeof product->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return take(&product->aux_leading, sizeof product->aux_leading, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return take(&product->bias_type, sizeof product->bias_type, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
    const struct simcuda_blas_layout contents = {type, rows, columns, leading};
    return create(layout, &contents, sizeof contents);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    const struct simcuda_blas_preference contents = {.alignment = {256, 256, 256, 256}};
    return create(preference, &contents, sizeof contents);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                                    size_t bytes) {
    switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(&preference->workspace, sizeof preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
        const int operand = (int)which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
        return take(&preference->alignment[operand], sizeof(uint32_t), value, bytes);
    }
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- epilogues ---- */

/* The parts that the library's numbers are made of. */
enum { ADDS_BIAS = CUBLASLT_EPILOGUE_BIAS, TAKES_GELU = CUBLASLT_EPILOGUE_GELU, KEEPS_AUX = 128 };

static bool has(const struct simcuda_blas_product *p, uint32_t part) {
    return (p->epilogue & part) != 0;
}

static bool is_epilogue(uint32_t epilogue) {
    static const uint32_t known[] = {CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                                     CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
                                     CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                     CUBLASLT_EPILOGUE_BGRADA};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == epilogue)
            return true;
    return false;
}

/* Whether the bias pointer is used. */
static bool has_vector(const struct simcuda_blas_product *p) {
    return has(p, ADDS_BIAS) || p->epilogue == CUBLASLT_EPILOGUE_BGRADA;
}

/* ---- what is accepted ---- */

/* The rows of the documentation's table of types for compute type 32F and scale type 32F that are built here. */
static bool types_are_listed(const struct simcuda_blas_product *p, cudaDataType a, cudaDataType b, cudaDataType c,
                             cudaDataType d) {
    const cudaDataType bias = p->bias_type < 0 ? d : (cudaDataType)p->bias_type;
    if (a != b || c != d || (has_vector(p) && bias != d))
        return false;
    if (p->compute == CUBLAS_COMPUTE_32F_FAST_TF32)
        return a == CUDA_R_32F && d == CUDA_R_32F;
    return p->compute == CUBLAS_COMPUTE_32F && (d == a || d == CUDA_R_32F);
}

static bool is_stored(const struct simcuda_blas_layout *l) {
    return l->rows > 0 && l->columns > 0 && l->leading >= (int64_t)l->rows;
}

static uint64_t rows_of(const struct simcuda_blas_layout *l, int32_t transposed) {
    return transposed == CUBLAS_OP_N ? l->rows : l->columns;
}

static uint64_t columns_of(const struct simcuda_blas_layout *l, int32_t transposed) {
    return transposed == CUBLAS_OP_N ? l->columns : l->rows;
}

static cublasStatus_t check_epilogue(const struct simcuda_blas_product *p, const struct simcuda_blas_layout *a,
                                     const struct simcuda_blas_layout *d) {
    if (!is_epilogue(p->epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has(p, KEEPS_AUX) && (p->aux_leading % 8 != 0 || p->aux_leading < (int64_t)d->rows))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p->epilogue == CUBLASLT_EPILOGUE_BGRADA && (p->transpose_a != CUBLAS_OP_N || a->columns == 1))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_product(const struct simcuda_blas_product *p, const struct simcuda_blas_layout *a,
                                    const struct simcuda_blas_layout *b, const struct simcuda_blas_layout *c,
                                    const struct simcuda_blas_layout *d) {
    if (!is_stored(a) || !is_stored(b) || !is_stored(c) || !is_stored(d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (rows_of(a, p->transpose_a) != d->rows || columns_of(b, p->transpose_b) != d->columns ||
        columns_of(a, p->transpose_a) != rows_of(b, p->transpose_b) || c->rows != d->rows || c->columns != d->columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t status = check_epilogue(p, a, d);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return types_are_listed(p, a->type, b->type, c->type, d->type) ? CUBLAS_STATUS_SUCCESS
                                                                   : CUBLAS_STATUS_NOT_SUPPORTED;
}

static uint64_t mix(uint64_t digest, uint64_t value) {
    return (digest ^ value) * 0x9E3779B97F4A7C15u ^ digest >> 29;
}

static uint64_t digest_layout(uint64_t digest, const struct simcuda_blas_layout *l) {
    return mix(mix(mix(mix(digest, (uint64_t)l->type), l->rows), l->columns), (uint64_t)l->leading);
}

static uint64_t digest_product(const struct simcuda_blas_product *p,
                               const struct simcuda_blas_layout *const layouts[4]) {
    uint64_t digest = mix(mix(mix(p->compute, (uint64_t)p->transpose_a), (uint64_t)p->transpose_b), p->epilogue);
    digest = mix(digest, (uint64_t)p->aux_leading);
    for (int i = 0; i < 4; i++)
        digest = digest_layout(digest, layouts[i]);
    return digest;
}

/* The documentation promises algorithms for no product. */
static bool has_algorithm(uint32_t epilogue) {
    const char *limit = getenv("SIMCUDA_EPILOGUES");
    return limit == NULL || epilogue == CUBLASLT_EPILOGUE_DEFAULT || epilogue == CUBLASLT_EPILOGUE_BIAS;
}

/* Every fifth seed's algorithms want all that they may have, as it takes long to touch; of other seeds' few are large.
 */
static uint64_t pick_workspace(uint64_t most) {
    if (simcuda_run_seed() % 5 == 4)
        return most;
    most >>= simcuda_random() % 24;
    return simcuda_random() % (most + 1);
}

/* How a pointer is aligned that an algorithm is chosen for; one that is not set yet is taken to be as a tensor is. */
static uint32_t alignment_of(const void *data) {
    const uintptr_t lowest = (uintptr_t)data & (~(uintptr_t)data + 1);
    return lowest == 0 || lowest > STRIDE ? STRIDE : (uint32_t)lowest;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *returned) {
    *returned = 0;
    if (handle == NULL || requested < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t status = check_product(product, a, b, c, d);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!has_algorithm(product->epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const struct simcuda_blas_layout *const layouts[4] = {a, b, c, d};
    choice chosen = {.product = digest_product(product, layouts), .workspace = pick_workspace(preference->workspace)};
    memcpy(chosen.alignment, preference->alignment, sizeof chosen.alignment);
    chosen.alignment_bias = alignment_of(product->bias);
    chosen.alignment_aux = alignment_of(product->aux);
    results[0] = (cublasLtMatmulHeuristicResult_t){.workspaceSize = chosen.workspace, .state = CUBLAS_STATUS_SUCCESS};
    memcpy(&results[0].algo, &chosen, sizeof chosen);
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- a product ---- */

typedef struct matrix {
    char *data;
    struct simcuda_blas_layout layout;
} matrix;

typedef struct queued_product {
    struct simcuda_blas_product product;
    matrix a, b, c, d;
    float alpha, beta;
    char *workspace;
    size_t workspace_bytes;
} queued_product;

static size_t type_bytes(cudaDataType type) {
    return type == CUDA_R_32F ? 4 : 2;
}

static float load(const char *data, cudaDataType type, size_t i) {
    uint16_t bits;
    float value;
    if (type == CUDA_R_32F) {
        memcpy(&value, data + 4 * i, sizeof value);
        return value;
    }
    memcpy(&bits, data + 2 * i, sizeof bits);
    return type == CUDA_R_16BF ? float_from_bf16(bits) : float_from_f16(bits);
}

static void store(char *data, cudaDataType type, size_t i, float value) {
    if (type == CUDA_R_32F) {
        memcpy(data + 4 * i, &value, sizeof value);
        return;
    }
    const uint16_t bits = type == CUDA_R_16BF ? bf16_from_float(value) : f16_from_float(value);
    memcpy(data + 2 * i, &bits, sizeof bits);
}

/* Nearest with 10 bits of fraction, halves away from zero. */
static float round_to_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x1000u) & 0xFFFFE000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void announce(const matrix *m, bool written, const char *who) {
    const size_t size = type_bytes(m->layout.type);
    for (uint64_t column = 0; column < m->layout.columns; column++) {
        char *start = m->data + (size_t)m->layout.leading * column * size;
        if (written)
            simcuda_write(start, m->layout.rows * size, who);
        else
            simcuda_read(start, m->layout.rows * size, who);
    }
}

/* op(m) as floats, column after column without gaps; freed by the caller. */
static float *expand(const matrix *m, int32_t transposed, bool tf32) {
    const uint64_t rows = rows_of(&m->layout, transposed), columns = columns_of(&m->layout, transposed);
    float *expanded = malloc(rows * columns * sizeof *expanded);
    for (uint64_t j = 0; j < columns; j++)
        for (uint64_t i = 0; i < rows; i++) {
            const uint64_t row = transposed == CUBLAS_OP_N ? i : j, column = transposed == CUBLAS_OP_N ? j : i;
            const float x = load(m->data, m->layout.type, column * (size_t)m->layout.leading + row);
            expanded[j * rows + i] = tf32 ? round_to_tf32(x) : x;
        }
    return expanded;
}

static void multiply_column(const float *a, const float *b, uint64_t rows, uint64_t depth, float *sums) {
    memset(sums, 0, rows * sizeof *sums);
    for (uint64_t k = 0; k < depth; k++)
        for (uint64_t i = 0; i < rows; i++)
            sums[i] += a[k * rows + i] * b[k];
}

static float gelu(float x) {
    return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

static void finish_column(const queued_product *q, uint64_t column, const float *sums) {
    const struct simcuda_blas_product *p = &q->product;
    for (uint64_t i = 0; i < q->d.layout.rows; i++) {
        float value = q->alpha * sums[i];
        if (q->beta != 0)
            value += q->beta * load(q->c.data, q->c.layout.type, column * (size_t)q->c.layout.leading + i);
        if (has(p, ADDS_BIAS))
            value += load(p->bias, q->d.layout.type, i);
        if (has(p, KEEPS_AUX))
            store(p->aux, q->d.layout.type, column * (size_t)p->aux_leading + i, value);
        if (has(p, TAKES_GELU))
            value = gelu(value);
        store(q->d.data, q->d.layout.type, column * (size_t)q->d.layout.leading + i, value);
    }
}

/* The sums of op(A)'s rows, which is as op(A) is expanded. */
static void sum_rows(const queued_product *q, const float *a, uint64_t rows, uint64_t depth) {
    for (uint64_t i = 0; i < rows; i++) {
        float sum = 0;
        for (uint64_t k = 0; k < depth; k++)
            sum += a[k * rows + i];
        store(q->product.bias, q->d.layout.type, i, sum);
    }
}

static void scribble(char *workspace, size_t bytes) {
    for (size_t at = 0; at < bytes; at += at < SCRIBBLE ? SCRIBBLE : STRIDE) {
        const size_t most = at < SCRIBBLE ? SCRIBBLE : STROKE, left = bytes - at, stroke = left < most ? left : most;
        simcuda_write(workspace + at, stroke, "cublasLtMatmul workspace");
        memset(workspace + at, 0xA5, stroke);
    }
}

static bool advance_product(void *state) {
    const queued_product *q = state;
    const bool tf32 = q->product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const uint64_t rows = q->d.layout.rows, depth = columns_of(&q->a.layout, q->product.transpose_a);
    announce(&q->a, false, "cublasLtMatmul A");
    announce(&q->b, false, "cublasLtMatmul B");
    if (q->beta != 0)
        announce(&q->c, false, "cublasLtMatmul C");
    if (has(&q->product, ADDS_BIAS))
        simcuda_read(q->product.bias, rows * type_bytes(q->d.layout.type), "cublasLtMatmul bias");
    scribble(q->workspace, q->workspace_bytes);
    announce(&q->d, true, "cublasLtMatmul D");
    if (has(&q->product, KEEPS_AUX))
        announce(&(matrix){q->product.aux, {q->d.layout.type, rows, q->d.layout.columns, q->product.aux_leading}}, true,
                 "cublasLtMatmul auxiliary output");
    if (q->product.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        simcuda_write(q->product.bias, rows * type_bytes(q->d.layout.type), "cublasLtMatmul bias gradient");
    float *a = expand(&q->a, q->product.transpose_a, tf32), *b = expand(&q->b, q->product.transpose_b, tf32);
    float *sums = malloc(rows * sizeof *sums);
    for (uint64_t column = 0; column < q->d.layout.columns; column++) {
        multiply_column(a, b + column * depth, rows, depth, sums);
        finish_column(q, column, sums);
    }
    if (q->product.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        sum_rows(q, a, rows, depth);
    free(a);
    free(b);
    free(sums);
    return true;
}

static void check_alignment(const void *data, uint32_t promised, const char *which) {
    if ((uintptr_t)data % promised != 0)
        simcuda_refuse(
            "cublasLtMatmul: %s at %p is not aligned to the %u bytes that were promised when its algorithm was "
            "chosen",
            which, data, promised);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    if (handle == NULL || algorithm == NULL)
        return CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t status = check_product(product, a_layout, b_layout, c_layout, d_layout);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if ((has_vector(product) && product->bias == NULL) || (has(product, KEEPS_AUX) && product->aux == NULL))
        return CUBLAS_STATUS_INVALID_VALUE;
    const struct simcuda_blas_layout *const layouts[4] = {a_layout, b_layout, c_layout, d_layout};
    choice chosen;
    memcpy(&chosen, algorithm, sizeof chosen);
    if (chosen.product != digest_product(product, layouts) || (c == d && c_layout->leading != d_layout->leading))
        return CUBLAS_STATUS_INVALID_VALUE;
    check_alignment(a, chosen.alignment[0], "A");
    check_alignment(b, chosen.alignment[1], "B");
    check_alignment(c, chosen.alignment[2], "C");
    check_alignment(d, chosen.alignment[3], "D");
    if (has_vector(product))
        check_alignment(product->bias, chosen.alignment_bias, "bias");
    if (has(product, KEEPS_AUX))
        check_alignment(product->aux, chosen.alignment_aux, "auxiliary output");
    if (chosen.workspace > workspace_bytes || (chosen.workspace > 0 && workspace == NULL))
        simcuda_refuse("cublasLtMatmul: a workspace of %zu bytes, where the chosen algorithm needs %llu",
                       workspace_bytes, (unsigned long long)chosen.workspace);
    queued_product *q = malloc(sizeof *q);
    *q = (queued_product){.product = *product,
                          .a = {(char *)(uintptr_t)a, *a_layout},
                          .b = {(char *)(uintptr_t)b, *b_layout},
                          .c = {(char *)(uintptr_t)c, *c_layout},
                          .d = {d, *d_layout},
                          .alpha = *(const float *)alpha,
                          .beta = *(const float *)beta,
                          .workspace = workspace,
                          .workspace_bytes = chosen.workspace};
    simcuda_queue(stream,
                  (simcuda_work){.name = "cublasLtMatmul", .advance = advance_product, .destroy = free, .state = q});
    return CUBLAS_STATUS_SUCCESS;
}
