#include "comm/topology_xml.h"

#include "engine/checked.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    XML_Parser parser;
    xml_element *root, *open; /* open: whose end has not come yet */
    int depth;
} reading;

enum { XML_DEPTH_MOST = 256 };

static char **copy_attributes(const char **attributes) {
    size_t count = 0;
    while (attributes[count] != NULL)
        count++;
    char **copies = memory_allocate(count + 1, sizeof *copies);
    for (size_t i = 0; i < count; i++)
        copies[i] = memory_copy_string(attributes[i]);
    return copies;
}

static void start_element(void *state, const char *name, const char **attributes) {
    reading *r = state;
    xml_element *element = memory_allocate(1, sizeof *element);
    *element = (xml_element){.name = memory_copy_string(name),
                             .attributes = copy_attributes(attributes),
                             .parent = r->open,
                             .line = (long)XML_GetCurrentLineNumber(r->parser)};
    if (r->open == NULL)
        r->root = element;
    else if (r->open->last == NULL)
        r->open->first = r->open->last = element;
    else
        r->open->last = r->open->last->next = element;
    r->open = element;
    if (++r->depth > XML_DEPTH_MOST)
        XML_StopParser(r->parser, XML_FALSE);
}

static void end_element(void *state, const char *name) {
    (void)name;
    reading *r = state;
    r->open = r->open->parent;
    r->depth--;
}

static bool parse(reading *r, FILE *in, const char *path, error *e) {
    char block[65536];
    size_t length;
    do {
        length = fread(block, 1, sizeof block, in);
        if (ferror(in))
            return error_set(e, EXIT_USAGE, "%s: cannot read: %s", path, strerror(errno));
        if (XML_Parse(r->parser, block, (int)length, length < sizeof block) != XML_STATUS_OK)
            return error_set(e, EXIT_USAGE,
                             "%s:%lu: not XML: %s; expected hwloc's XML (lstopo FILE.xml) or NCCL's topology XML "
                             "(NCCL_TOPO_DUMP_FILE)",
                             path, (unsigned long)XML_GetCurrentLineNumber(r->parser),
                             r->depth > XML_DEPTH_MOST ? "too many elements inside each other"
                                                       : XML_ErrorString(XML_GetErrorCode(r->parser)));
    } while (length == sizeof block);
    return true;
}

xml_element *xml_read(const char *path, error *e) {
    FILE *in = fopen(path, "rb");
    if (in == NULL) {
        error_set(e, EXIT_USAGE, "%s: cannot open: %s", path, strerror(errno));
        return NULL;
    }
    reading r = {.parser = XML_ParserCreate(NULL)};
    check(r.parser != NULL, "no memory for an XML parser");
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, start_element, end_element);
    const bool good = parse(&r, in, path, e);
    XML_ParserFree(r.parser);
    fclose(in);
    if (good)
        return r.root;
    xml_free(r.root);
    return NULL;
}

void xml_free(xml_element *root) {
    if (root == NULL)
        return;
    for (xml_element *child = root->first, *next; child != NULL; child = next) {
        next = child->next;
        xml_free(child);
    }
    for (char **text = root->attributes; *text != NULL; text++)
        free(*text);
    free(root->attributes);
    free(root->name);
    free(root);
}

const char *xml_attribute(const xml_element *element, const char *name) {
    for (char **pair = element->attributes; *pair != NULL; pair += 2)
        if (strcmp(pair[0], name) == 0)
            return pair[1];
    return NULL;
}
