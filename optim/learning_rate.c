#include "optim/learning_rate.h"

#include <math.h>

double learning_rate(const rate_settings *s, int64_t step) {
    if (step < s->warmup)
        return s->rate * (double)(step + 1) / (double)s->warmup;
    const double progress = s->steps > s->warmup ? (double)(step - s->warmup) / (double)(s->steps - s->warmup) : 0;
    switch (s->schedule) {
    case RATE_COSINE:
        return s->minimum + (s->rate - s->minimum) * (1 + cos(M_PI * progress)) / 2;
    case RATE_LINEAR:
        return s->rate + (s->minimum - s->rate) * progress;
    case RATE_CONSTANT:
        break;
    }
    return s->rate;
}
