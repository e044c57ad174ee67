#include "engine/device/cuda/matmul.h"

#include "engine/checked.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

/* cuBLASLt counts columns first: a row-major matrix is its transpose to it. So c[m,n] = op(a)[m,k] op(b)[k,n] is asked
 * for as c^T[n,m] = op(b)^T[n,k] op(a)^T[k,m]: its first factor is b, its second a, and transposed is what is
 * transposed here. The bias is then added along columns of length n, which is the one way the library knows. */

enum { WORKSPACE_BYTES = 32 << 20, KNOWN_ALIGNMENT = 256 };

/* What the choice of an algorithm depends on. Filled from zeroed bytes, since it is compared as bytes. */
typedef struct matmul_key {
    int64_t m, n, k;
    dtype input, output;
    uint32_t alignment_a, alignment_b, alignment_c, alignment_preactivation, alignment_vector;
    bool transpose_a, transpose_b, accumulate, tf32;
    bool bias, gelu, preactivation, column_sums;
} matmul_key;

typedef struct matmul_plan {
    matmul_key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
} matmul_plan;

struct cuda_matmul {
    cublasLtHandle_t library;
    matmul_plan *plans;
    size_t plan_count, plan_capacity;
};

static bool fail(cublasStatus_t status, const char *call, error *e) {
    return error_set_own(e, EXIT_LAUNCH, "%s failed: %s", call, cublasLtGetStatusString(status));
}

/* Evaluates a call of the library; leaves the calling function with an error where it fails. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const cublasStatus_t try_status = (call);                                                                      \
        if (try_status != CUBLAS_STATUS_SUCCESS)                                                                       \
            return fail(try_status, #call, e);                                                                         \
    } while (0)

/* ---- keys ---- */

static uint32_t alignment_of(const void *p) {
    const uintptr_t lowest = (uintptr_t)p & (~(uintptr_t)p + 1);
    return lowest == 0 || lowest > KNOWN_ALIGNMENT ? KNOWN_ALIGNMENT : (uint32_t)lowest;
}

/* The bias or, of a product that makes them, the column sums: the library has one pointer for both. NULL: neither. */
static void *vector_of(const launch *l) {
    return l->out[2].data != NULL ? l->out[2].data : l->in[2].data;
}

static matmul_key key_of(const launch *l) {
    const attributes *a = &l->attributes;
    const operand *left = &l->in[0], *right = &l->in[1], *out = &l->out[0];
    matmul_key key;
    memset(&key, 0, sizeof key);
    key.m = out->shape[0];
    key.n = out->shape[1];
    key.k = left->shape[a->transpose_a ? 0 : 1];
    key.input = left->type;
    key.output = out->type;
    key.alignment_a = alignment_of(left->data);
    key.alignment_b = alignment_of(right->data);
    key.alignment_c = alignment_of(out->data);
    key.alignment_preactivation = alignment_of(l->out[1].data);
    key.alignment_vector = alignment_of(vector_of(l));
    key.transpose_a = a->transpose_a;
    key.transpose_b = a->transpose_b;
    key.accumulate = (l->accumulate & 1) != 0;
    key.tf32 = a->tf32;
    key.bias = l->in[2].data != NULL;
    key.gelu = a->gelu;
    key.preactivation = l->out[1].data != NULL;
    key.column_sums = l->out[2].data != NULL;
    return key;
}

/* ---- plans ---- */

static cudaDataType data_type(dtype type) {
    switch (type) {
    case DTYPE_BF16:
        return CUDA_R_16BF;
    case DTYPE_F16:
        return CUDA_R_16F;
    default:
        return CUDA_R_32F;
    }
}

/* A row-major matrix of `rows` by `columns`, as the library sees it. */
static bool make_layout(cublasLtMatrixLayout_t *layout, dtype type, int64_t rows, int64_t columns, error *e) {
    TRY(cublasLtMatrixLayoutCreate(layout, data_type(type), (uint64_t)columns, (uint64_t)rows, columns));
    return true;
}

static bool set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t which, const void *value, size_t bytes,
                error *e) {
    TRY(cublasLtMatmulDescSetAttribute(product, which, value, bytes));
    return true;
}

/* The library's first factor is b, whose columns are its rows: "bias gradient of A". */
static cublasLtEpilogue_t epilogue_of(const matmul_key *key) {
    static const cublasLtEpilogue_t epilogues[][2] = {{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS},
                                                      {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS},
                                                      {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}};
    return key->column_sums ? CUBLASLT_EPILOGUE_BGRADA : epilogues[key->gelu + key->preactivation][key->bias];
}

/* What the epilogue reads and writes. The choice of an algorithm learns from these pointers how they are aligned. */
static bool set_pointers(matmul_plan *plan, const launch *l, error *e) {
    void *vector = vector_of(l), *preactivation = l->out[1].data;
    return (vector == NULL ||
            set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, (const void *)&vector, sizeof vector, e)) &&
           (preactivation == NULL || set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                         (const void *)&preactivation, sizeof preactivation, e));
}

static bool describe_product(matmul_plan *plan, const launch *l, error *e) {
    const matmul_key *key = &plan->key;
    const cublasComputeType_t compute = key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t first = key->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = key->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = epilogue_of(key);
    TRY(cublasLtMatmulDescCreate(&plan->product, compute, CUDA_R_32F));
    return set(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first, e) &&
           set(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second, e) &&
           set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, e) &&
           (!key->preactivation ||
            set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &key->n, sizeof key->n, e)) &&
           set_pointers(plan, l, e);
}

static bool prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which, const void *value,
                   size_t bytes, error *e) {
    TRY(cublasLtMatmulPreferenceSetAttribute(preference, which, value, bytes));
    return true;
}

static bool fill_preference(cublasLtMatmulPreference_t preference, const matmul_key *key, error *e) {
    const uint64_t workspace = WORKSPACE_BYTES;
    return prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace, e) &&
           prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->alignment_b, sizeof(uint32_t), e) &&
           prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->alignment_a, sizeof(uint32_t), e) &&
           prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->alignment_c, sizeof(uint32_t), e) &&
           prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->alignment_c, sizeof(uint32_t), e);
}

static bool choose_algorithm(cublasLtHandle_t library, matmul_plan *plan, error *e) {
    const matmul_key *key = &plan->key;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    TRY(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const bool filled = fill_preference(preference, key, e);
    if (filled)
        status = cublasLtMatmulAlgoGetHeuristic(library, plan->product, plan->b, plan->a, plan->c, plan->c, preference,
                                                1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (!filled)
        return false;
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
        return error_set_own(e, EXIT_LAUNCH,
                             "cuBLASLt has no algorithm for a matmul of m %lld, n %lld, k %lld, %s to %s: %s",
                             (long long)key->m, (long long)key->n, (long long)key->k, dtype_name(key->input),
                             dtype_name(key->output), cublasLtGetStatusString(status));
    plan->algorithm = best.algo;
    return true;
}

static void destroy_plan(matmul_plan *plan) {
    if (plan->product != NULL)
        cublasLtMatmulDescDestroy(plan->product);
    if (plan->a != NULL)
        cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b != NULL)
        cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->c != NULL)
        cublasLtMatrixLayoutDestroy(plan->c);
}

static bool make_plan(cublasLtHandle_t library, const launch *l, const matmul_key *key, matmul_plan *plan, error *e) {
    *plan = (matmul_plan){.key = *key};
    if (make_layout(&plan->a, key->input, l->in[0].shape[0], l->in[0].shape[1], e) &&
        make_layout(&plan->b, key->input, l->in[1].shape[0], l->in[1].shape[1], e) &&
        make_layout(&plan->c, key->output, key->m, key->n, e) && describe_product(plan, l, e) &&
        choose_algorithm(library, plan, e))
        return true;
    destroy_plan(plan);
    return false;
}

/* NULL: e is set. A model has a few dozen combinations, so they are searched one by one. */
static matmul_plan *plan_for(cuda_matmul *m, const launch *l, error *e) {
    const matmul_key key = key_of(l);
    for (size_t i = 0; i < m->plan_count; i++)
        if (memcmp(&m->plans[i].key, &key, sizeof key) == 0)
            return &m->plans[i];
    if (m->plan_count == m->plan_capacity) {
        m->plan_capacity = m->plan_capacity > 0 ? 2 * m->plan_capacity : 32;
        m->plans = memory_grow(m->plans, m->plan_capacity, sizeof *m->plans);
    }
    matmul_plan *plan = &m->plans[m->plan_count];
    if (!make_plan(m->library, l, &key, plan, e))
        return NULL;
    m->plan_count++;
    return plan;
}

/* ---- the device's side ---- */

bool cuda_matmul_open(cuda_matmul **opened, error *e) {
    cublasLtHandle_t library;
    TRY(cublasLtCreate(&library));
    *opened = memory_allocate(1, sizeof **opened);
    **opened = (cuda_matmul){.library = library};
    return true;
}

void cuda_matmul_close(cuda_matmul *m) {
    for (size_t i = 0; i < m->plan_count; i++)
        destroy_plan(&m->plans[i]);
    free(m->plans);
    cublasLtDestroy(m->library);
    free(m);
}

size_t cuda_matmul_workspace(const launch *l) {
    (void)l;
    return WORKSPACE_BYTES;
}

/* What the library's documentation allows, but for the gelu in fp32: how exact the library's is is said nowhere, and it
 * may be the processor's approximate tanh, of 11 bits. Sums of columns differ in their order only. */
static bool may_fuse(const launch *l) {
    const operand *left = &l->in[0], *out = &l->out[0], *sums = &l->out[2];
    enum { PREACTIVATION_COLUMNS = 8 }; /* its leading dimension is a multiple of them */
    if (l->attributes.gelu && left->type == DTYPE_F32 && !l->attributes.tf32)
        return false;
    if (l->out[1].data != NULL && out->shape[1] % PREACTIVATION_COLUMNS != 0)
        return false;
    return sums->data == NULL || (sums->type == out->type && left->shape[l->attributes.transpose_a ? 0 : 1] > 1);
}

/* A launch of these shapes with its operands where tensors start. */
static launch placed(const launch *l) {
    launch made = *l;
    for (int i = 0; i < OPERATION_INPUTS; i++)
        if (l->in[i].data != NULL)
            made.in[i].data = (void *)(uintptr_t)KNOWN_ALIGNMENT;
    for (int o = 0; o < OPERATION_OUTPUTS; o++)
        if (l->out[o].data != NULL)
            made.out[o].data = (void *)(uintptr_t)KNOWN_ALIGNMENT;
    return made;
}

bool cuda_matmul_fuses(cuda_matmul *m, const launch *l) {
    error none = {0};
    const launch at = placed(l);
    return may_fuse(l) && (m == NULL || plan_for(m, &at, &none) != NULL);
}

bool cuda_matmul_queue(cuda_matmul *m, const launch *l, cudaStream_t stream, error *e) {
    matmul_plan *plan = plan_for(m, l, e);
    if (plan == NULL)
        return false;
    const float one = 1, earlier = plan->key.accumulate ? 1 : 0;
    if (!set_pointers(plan, l, e))
        return false;
    TRY(cublasLtMatmul(m->library, plan->product, &one, l->in[1].data, plan->b, l->in[0].data, plan->a, &earlier,
                       l->out[0].data, plan->c, l->out[0].data, plan->c, &plan->algorithm, l->workspace,
                       WORKSPACE_BYTES, stream));
    return true;
}
