/* Part of reference_kernels.h: the layers of a model, except attention. Shapes and formulas: operation.h. */

static void embedding(const launch *l) {
    const int32_t *tokens = l->in[0].data;
    const real *table = l->in[1].data, *positions = l->in[2].data;
    real *out = l->out[0].data;
    int64_t rows = l->out[0].shape[0], width = l->out[0].shape[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < width; c++) {
            real position = positions != NULL ? positions[i % l->attributes.sequence * width + c] : 0;
            out[i * width + c] = table[tokens[i] * width + c] + position;
        }
}

static void embedding_backward(const launch *l) {
    const real *dout = l->in[0].data;
    const int32_t *tokens = l->in[1].data, *order = l->in[2].data;
    real *dtable = l->out[0].data;
    int64_t rows = l->in[0].shape[0], vocabulary = l->out[0].shape[0], width = l->out[0].shape[1];
    int64_t next = 0; /* in order: tokens ascend */
    for (int64_t v = 0; v < vocabulary; v++) {
        int64_t first = next;
        while (next < rows && tokens[order[next]] == v)
            next++;
        for (int64_t c = 0; c < width; c++) {
            double total = 0;
            for (int64_t i = first; i < next; i++)
                total += (double)dout[order[i] * width + c];
            put(&dtable[v * width + c], adds(l, 0), total);
        }
    }
}

static void position_backward(const launch *l) {
    const real *dout = l->in[0].data;
    real *dpositions = l->out[0].data;
    int64_t rows = l->in[0].shape[0], positions = l->out[0].shape[0], width = l->out[0].shape[1];
    for (int64_t t = 0; t < positions; t++)
        for (int64_t c = 0; c < width; c++) {
            double total = 0;
            for (int64_t i = t; t < l->attributes.sequence && i < rows; i += l->attributes.sequence)
                total += (double)dout[i * width + c];
            put(&dpositions[t * width + c], adds(l, 0), total);
        }
}

static void norm(const launch *l) {
    const real *x = l->in[0].data, *residual = l->in[1].data, *weight = l->in[2].data, *bias = l->in[3].data;
    real *normed = l->out[0].data, *sum = l->out[1].data, *statistics = l->out[2].data;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1];
    for (int64_t i = 0; i < rows; i++, x += width, normed += width) {
        const real *s = x;
        if (residual != NULL) {
            for (int64_t c = 0; c < width; c++)
                sum[i * width + c] = x[c] + residual[i * width + c];
            s = sum + i * width;
        }
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < width && l->attributes.norm == NORM_LAYER; c++)
            mean += (double)s[c] / (double)width;
        for (int64_t c = 0; c < width; c++)
            variance += ((double)s[c] - mean) * ((double)s[c] - mean) / (double)width;
        double rstd = 1 / sqrt(variance + l->attributes.epsilon);
        for (int64_t c = 0; c < width; c++)
            normed[c] = (real)(((double)s[c] - mean) * rstd * (double)weight[c] + (bias != NULL ? (double)bias[c] : 0));
        statistics[2 * i] = (real)mean;
        statistics[2 * i + 1] = (real)rstd;
    }
}

static void norm_backward(const launch *l) {
    const real *dnormed = l->in[0].data, *dsum_in = l->in[1].data, *s = l->in[2].data, *statistics = l->in[3].data;
    const real *weight = l->in[4].data;
    real *dsum = l->out[0].data, *dweight = l->out[1].data, *dbias = l->out[2].data;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1];
    for (int64_t c = 0; c < width; c++) { /* before dsum, which may take the bytes of dnormed */
        double weight_total = 0, bias_total = 0;
        for (int64_t i = 0; i < rows; i++) {
            double d = (double)dnormed[i * width + c];
            bias_total += d;
            weight_total += d * ((double)s[i * width + c] - (double)statistics[2 * i]) * (double)statistics[2 * i + 1];
        }
        put(&dweight[c], adds(l, 1), weight_total);
        if (dbias != NULL)
            put(&dbias[c], adds(l, 2), bias_total);
    }
    for (int64_t i = 0; i < rows; i++) {
        double mean = (double)statistics[2 * i], rstd = (double)statistics[2 * i + 1];
        double direct = 0, scaled = 0; /* means over the row of d weight, and of that times the normalised value */
        for (int64_t c = 0; c < width; c++) {
            double d = (double)dnormed[i * width + c] * (double)weight[c] / (double)width;
            direct += l->attributes.norm == NORM_LAYER ? d : 0;
            scaled += d * ((double)s[i * width + c] - mean) * rstd;
        }
        for (int64_t j = i * width; j < (i + 1) * width; j++) {
            double d = (double)dnormed[j] * (double)weight[j - i * width], value = ((double)s[j] - mean) * rstd;
            dsum[j] = (real)(rstd * (d - direct - value * scaled) + (dsum_in != NULL ? (double)dsum_in[j] : 0));
        }
    }
}

static void column_sum(const launch *l) {
    const real *x = l->in[0].data;
    real *out = l->out[0].data;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1];
    for (int64_t c = 0; c < width; c++) {
        double total = 0;
        for (int64_t i = 0; i < rows; i++)
            total += (double)x[i * width + c];
        put(&out[c], adds(l, 0), total);
    }
}

/* gelu(x) = x g(u) with u = sqrt(2/pi) (x + 0.044715 x^3) and g(u) = (1 + tanh u) / 2. */
static const double gelu_scale = 0.79788456080286535588, gelu_cubic = 0.044715;

static double gelu_of(double x) {
    return 0.5 * x * (1 + tanh(gelu_scale * (x + gelu_cubic * x * x * x)));
}

static void matmul(const launch *l) {
    const real *a = l->in[0].data, *b = l->in[1].data, *bias = l->in[2].data;
    real *c = l->out[0].data, *preactivation = l->out[1].data;
    bool transpose_a = l->attributes.transpose_a, transpose_b = l->attributes.transpose_b;
    int64_t m = l->out[0].shape[0], n = l->out[0].shape[1], k = l->in[0].shape[transpose_a ? 0 : 1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double total = bias != NULL ? (double)bias[j] : 0;
            for (int64_t p = 0; p < k; p++)
                total +=
                    (double)a[transpose_a ? p * m + i : i * k + p] * (double)b[transpose_b ? j * k + p : p * n + j];
            const real x = (real)total;
            if (preactivation != NULL)
                preactivation[i * n + j] = x;
            put(&c[i * n + j], adds(l, 0), l->attributes.gelu ? gelu_of((double)x) : total);
        }
    if (l->out[2].data != NULL)
        column_sum(&(launch){.kind = OPERATION_COLUMN_SUM, .in = {l->in[1]}, .out = {l->out[2]}});
}

static void rope(const launch *l) {
    const attributes *a = &l->attributes;
    const real *qkv = l->in[0].data, *cosine = l->in[1].data, *sine = l->in[2].data;
    real *out = l->out[0].data;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1], half = a->head_width / 2;
    int64_t rotated = (a->heads + a->kv_heads) * a->head_width; /* then values, copied */
    for (int64_t i = 0; i < rows; i++, qkv += width, out += width) {
        const real *row_cosine = cosine + i % a->sequence * half, *row_sine = sine + i % a->sequence * half;
        for (int64_t h = 0; h < rotated; h += a->head_width)
            for (int64_t j = 0; j < half; j++) {
                real first = qkv[h + j], second = qkv[h + j + half];
                real s = a->inverse ? -row_sine[j] : row_sine[j];
                out[h + j] = first * row_cosine[j] - second * s;
                out[h + j + half] = second * row_cosine[j] + first * s;
            }
        for (int64_t j = rotated; j < width; j++)
            out[j] = qkv[j];
    }
}

static void gelu(const launch *l) {
    const real *x = l->in[0].data;
    real *out = l->out[0].data;
    for (int64_t i = 0; i < operand_count(&l->in[0]); i++)
        out[i] = (real)gelu_of((double)x[i]);
}

static void gelu_backward(const launch *l) {
    const real *dout = l->in[0].data, *x = l->in[1].data;
    real *dx = l->out[0].data;
    for (int64_t i = 0; i < operand_count(&l->in[0]); i++) {
        double v = (double)x[i], t = tanh(gelu_scale * (v + gelu_cubic * v * v * v));
        double slope = gelu_scale * (1 + 3 * gelu_cubic * v * v);
        dx[i] = (real)((double)dout[i] * 0.5 * (1 + t + v * (1 - t * t) * slope));
    }
}

static void swiglu(const launch *l) {
    const real *gate_up = l->in[0].data;
    real *out = l->out[0].data;
    int64_t rows = l->out[0].shape[0], width = l->out[0].shape[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = 0; f < width; f++) {
            double gate = (double)gate_up[2 * i * width + f], up = (double)gate_up[(2 * i + 1) * width + f];
            out[i * width + f] = (real)(gate / (1 + exp(-gate)) * up);
        }
}

static void swiglu_backward(const launch *l) {
    const real *dout = l->in[0].data, *gate_up = l->in[1].data;
    real *dgate_up = l->out[0].data;
    int64_t rows = l->in[0].shape[0], width = l->in[0].shape[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = 0; f < width; f++) {
            int64_t at = 2 * i * width + f; /* of gate; up stands `width` behind it */
            double gate = (double)gate_up[at], up = (double)gate_up[at + width], d = (double)dout[i * width + f];
            double sigmoid = 1 / (1 + exp(-gate));
            dgate_up[at] = (real)(d * up * sigmoid * (1 + gate * (1 - sigmoid)));
            dgate_up[at + width] = (real)(d * gate * sigmoid);
        }
}

static void cross_entropy(const launch *l) {
    const real *logits = l->in[0].data;
    const int32_t *targets = l->in[1].data;
    const double *scalars = l->in[2].data, *loss_scale = l->in[3].data;
    const double scale = scalars[SCALAR_GRADIENT_SCALE] * (loss_scale != NULL ? loss_scale[LOSS_SCALE] : 1);
    real *loss = l->out[0].data, *dlogits = l->out[1].data;
    int64_t rows = l->in[0].shape[0], vocabulary = l->in[0].shape[1];
    for (int64_t i = 0; i < rows; i++, logits += vocabulary) {
        double largest = (double)logits[0], total = 0;
        for (int64_t v = 1; v < vocabulary; v++)
            largest = fmax(largest, (double)logits[v]);
        for (int64_t v = 0; v < vocabulary; v++)
            total += exp((double)logits[v] - largest);
        double logsumexp = largest + log(total);
        bool counted = targets[i] >= 0;
        loss[i] = (real)(counted ? logsumexp - (double)logits[targets[i]] : 0);
        for (int64_t v = 0; v < vocabulary && dlogits != NULL; v++) {
            double d = exp((double)logits[v] - logsumexp) - (v == targets[i] ? 1 : 0);
            dlogits[i * vocabulary + v] = (real)(counted ? d * scale : 0);
        }
    }
}

static void add(const launch *l) {
    const real *a = l->in[0].data, *b = l->in[1].data;
    real *out = l->out[0].data;
    for (int64_t i = 0; i < operand_count(&l->out[0]); i++)
        out[i] = a[i] + b[i];
}

static void fill(const launch *l) {
    real *out = l->out[0].data;
    for (int64_t i = 0; i < operand_count(&l->out[0]); i++)
        out[i] = (real)l->attributes.value;
}

/* A real is what 16-bit numbers are widened to; rounding to them is engine/device/half.h. */
static void cast(const launch *l) {
    const real *x = l->in[0].data;
    real *out = l->out[0].data;
    for (int64_t i = 0; i < operand_count(&l->out[0]); i++)
        out[i] = x[i];
}

static void sum(const launch *l) {
    const real *x = l->in[0].data;
    double total = 0;
    for (int64_t i = 0; i < operand_count(&l->in[0]); i++)
        total += (double)x[i];
    *(double *)l->out[0].data = total;
}
