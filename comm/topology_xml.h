/* An XML file as a tree of elements and attributes; text between elements is left out. */
#ifndef FSDP_COMM_TOPOLOGY_XML_H
#define FSDP_COMM_TOPOLOGY_XML_H

#include "engine/error.h"

typedef struct xml_element {
    char *name;
    char **attributes;                                /* name, value, name, value ... NULL */
    struct xml_element *parent, *first, *last, *next; /* children from first to last, chained by next */
    long line;
} xml_element;

/* Errors (EXIT_USAGE) name file and line. NULL then. */
xml_element *xml_read(const char *path, error *e);
void xml_free(xml_element *root);

const char *xml_attribute(const xml_element *element, const char *name); /* NULL: it has none */

#endif
