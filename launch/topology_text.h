/* What fsdp_topology shows of a machine and its rings: as text, as a picture, as JSON. */
#ifndef FSDP_LAUNCH_TOPOLOGY_TEXT_H
#define FSDP_LAUNCH_TOPOLOGY_TEXT_H

#include "comm/ring.h"

#include <stdio.h>

/* title: the file's name or "this machine"; nodes: as given to ring_find. */
void topology_print(const topology *t, const char *title, FILE *out);
void topology_print_rings(const topology *t, const ring_set *set, int nodes, FILE *out);
void topology_write_svg(const topology *t, const ring_set *set, const char *title, int nodes, FILE *out);
void topology_write_json(const topology *t, const ring_set *set, int nodes, FILE *out);

/* The links that prove the limit, the dearest first: indices into t->links. Returns how many; to be freed. */
int topology_limits(const topology *t, const ring_set *set, int **links);

/* True where all these links have one price: then every ring crosses them *crossings times in all, and together they
 * hold *bandwidth. */
bool topology_one_cut(const topology *t, const ring_set *set, const int *links, int count, double *crossings,
                      double *bandwidth);

/* "20", "21.7" */
enum { TOPOLOGY_NUMBER = 32 };
const char *topology_number(double value, char text[TOPOLOGY_NUMBER]);

#endif
