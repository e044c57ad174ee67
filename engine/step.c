#include "engine/step.h"

#include <stdlib.h>

void step_destroy(step *s) {
    if (s == NULL)
        return;
    program_destroy(s->program);
    free(s->master);
    free(s->first_moment);
    free(s->second_moment);
    free(s->gradient);
    free(s);
}
