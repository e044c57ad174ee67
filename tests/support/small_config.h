/* A small config file, config.ini, and what is read from it. */
#ifndef FSDP_TESTS_SUPPORT_SMALL_CONFIG_H
#define FSDP_TESTS_SUPPORT_SMALL_CONFIG_H

#include "launch/config.h"

/* A whole config of eleven lines; what a case adds starts at line 12. */
extern const char small_config[];

/* A failure of these fails the test. arguments: up to four, with a NULL behind them if there are fewer; NULL: none. */
void small_config_write(const char *text, const char *more);
config *small_config_read(const char *text, const char *more, const char *const *arguments);
model_shape small_config_resolve(config *c, const model_shape *from, int64_t tokenizer);

#endif
