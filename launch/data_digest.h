/* What tells one set of training files from another without reading all of it. */
#ifndef FSDP_LAUNCH_DATA_DIGEST_H
#define FSDP_LAUNCH_DATA_DIGEST_H

#include "launch/data.h"

#include <jansson.h>

/* A list, in the stream's order, of {"name": without folders, "bytes", "sample": XXH3 of blocks spread evenly over the
 * file, as 16 hexadecimal digits}; a new reference. */
json_t *data_digest(const data *d);

#endif
