#include "engine/device/operation.h"
#include "engine/device/update.h"

#include <string.h>

/* The shapes of operation.h as letters, a dimension each. Most stand for whatever size they first meet in an operation
 * and keep it there; these are worked out:
 *
 *   T sequence   H heads   O all heads' width   Q width of q|k|v   R half of a head's width   E twice F
 *   g granules of k   s, r, l scalars, results and values of the loss scale   w any shape of a multiple of k
 *   1, 2 themselves
 */
typedef struct shapes {
    const char *in[OPERATION_INPUTS], *out[OPERATION_OUTPUTS];
} shapes;

static const shapes shapes_of[OPERATION_KIND_COUNT] = {
    [OPERATION_EMBEDDING] = {{"N", "VC", "PC"}, {"NC"}},
    [OPERATION_EMBEDDING_BACKWARD] = {{"NC", "N", "N"}, {"VC"}},
    [OPERATION_POSITION_BACKWARD] = {{"NC"}, {"PC"}},
    [OPERATION_NORM] = {{"NC", "NC", "C", "C"}, {"NC", "NC", "N2"}},
    [OPERATION_NORM_BACKWARD] = {{"NC", "NC", "NC", "N2", "C"}, {"NC", "C", "C"}},
    [OPERATION_MATMUL] = {{"mk", "kn", "n"}, {"mn", "mn", "n"}},
    [OPERATION_COLUMN_SUM] = {{"Nn"}, {"n"}},
    [OPERATION_ROPE] = {{"NQ", "TR", "TR"}, {"NQ"}},
    [OPERATION_ATTENTION] = {{"NQ"}, {"NO", "NH"}},
    [OPERATION_ATTENTION_BACKWARD] = {{"NO", "NQ", "NO", "NH"}, {"NQ"}},
    [OPERATION_GELU] = {{"NF"}, {"NF"}},
    [OPERATION_GELU_BACKWARD] = {{"NF", "NF"}, {"NF"}},
    [OPERATION_SWIGLU] = {{"NE"}, {"NF"}},
    [OPERATION_SWIGLU_BACKWARD] = {{"NF", "NE"}, {"NE"}},
    [OPERATION_CROSS_ENTROPY] = {{"nV", "n", "s", "l"}, {"n", "nV"}},
    [OPERATION_ADD] = {{"xyz", "xyz"}, {"xyz"}},
    [OPERATION_FILL] = {{NULL}, {"xyz"}},
    [OPERATION_CAST] = {{"n"}, {"n"}},
    [OPERATION_SUM] = {{"n"}, {"1"}},
    [OPERATION_GRANULE_NORM] = {{"g"}, {"k"}},
    [OPERATION_STEP_RESULT] = {{"Mc", "s"}, {"r", "1", "l"}},
    [OPERATION_ADAMW] = {{"n", "s", "r", "1"}, {"n", "n", "n"}},
    [OPERATION_COPY_IN] = {{NULL}, {"xyz"}},
    [OPERATION_COPY_OUT] = {{"xyz"}, {NULL}},
    [OPERATION_ALL_GATHER] = {{"k"}, {"w"}},
    [OPERATION_REDUCE_SCATTER] = {{"w"}, {"k"}},
    [OPERATION_ALL_REDUCE] = {{"n"}, {"n"}},
};

enum { OPERANDS = OPERATION_INPUTS + OPERATION_OUTPUTS, LETTERS = 128, UNKNOWN = 0 };

/* Sizes that letters stand for, by character. */
typedef struct sizes {
    int64_t of[LETTERS];
} sizes;

static const operand *operand_at(const launch *l, int place) {
    return place < OPERATION_INPUTS ? &l->in[place] : &l->out[place - OPERATION_INPUTS];
}

static const char *letters_at(const launch *l, int place) {
    const shapes *s = &shapes_of[l->kind];
    if (l->kind == OPERATION_MATMUL && place == 0 && l->attributes.transpose_a)
        return "km";
    if (l->kind == OPERATION_MATMUL && place == 1 && l->attributes.transpose_b)
        return "nk";
    return place < OPERATION_INPUTS ? s->in[place] : s->out[place - OPERATION_INPUTS];
}

static bool is_derived(char letter) {
    return strchr("THOQREgsrlw12", letter) != NULL;
}

static void derive(const launch *l, sizes *s) {
    const attributes *a = &l->attributes;
    s->of['T'] = a->sequence;
    s->of['H'] = a->heads;
    s->of['O'] = a->heads * a->head_width;
    s->of['Q'] = (a->heads + 2 * a->kv_heads) * a->head_width;
    s->of['R'] = a->head_width / 2;
    s->of['E'] = 2 * s->of['F'];
    s->of['g'] = s->of['k'] * a->granule;
    s->of['s'] = SCALAR_COUNT;
    s->of['r'] = RESULT_COUNT;
    s->of['l'] = LOSS_SCALE_COUNT;
    s->of['1'] = 1;
    s->of['2'] = 2;
}

/* What the shape of an operand must be; 0: any size. */
static void expect(const sizes *s, const char *letters, int64_t *expected) {
    const size_t count = strlen(letters);
    for (size_t d = 0; d < OPERAND_DIMENSIONS; d++)
        expected[d] = letters[0] == 'w' ? UNKNOWN : d < count ? s->of[(int)letters[d]] : 1;
}

/* Letters that stand for themselves take the first size that they meet. */
static void meet(sizes *s, const char *letters, const int64_t *shape) {
    for (size_t d = 0; d < strlen(letters); d++)
        if (!is_derived(letters[d]) && s->of[(int)letters[d]] == UNKNOWN)
            s->of[(int)letters[d]] = shape[d];
}

int operation_wrong_shape(const launch *l, int64_t *expected) {
    sizes s = {{UNKNOWN}};
    for (int place = 0; place < OPERANDS; place++)
        if (operand_at(l, place)->data != NULL)
            meet(&s, letters_at(l, place), operand_at(l, place)->shape);
    derive(l, &s);
    for (int place = 0; place < OPERANDS; place++) {
        const operand *o = operand_at(l, place);
        if (o->data == NULL)
            continue;
        expect(&s, letters_at(l, place), expected);
        for (int d = 0; d < OPERAND_DIMENSIONS; d++)
            if (expected[d] != UNKNOWN && o->shape[d] != expected[d])
                return place;
        if (letters_at(l, place)[0] == 'w' && operand_count(o) % s.of['k'] != 0)
            return place;
    }
    return -1;
}
