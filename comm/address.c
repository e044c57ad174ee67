#include "comm/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool is_v4(const struct sockaddr *a, address *found) {
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;
    if (a->sa_family != AF_INET || ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
        return false;
    memcpy(found->bytes, &in->sin_addr, sizeof in->sin_addr);
    return true;
}

/* Addresses that hold on one link only mean nothing elsewhere. */
static bool is_v6(const struct sockaddr *a, address *found) {
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)a;
    if (a->sa_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&in->sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr))
        return false;
    memcpy(found->bytes, &in->sin6_addr, sizeof in->sin6_addr);
    return true;
}

int address_list(address *list, int room) {
    struct ifaddrs *all = NULL;
    int count = 0;
    if (getifaddrs(&all) != 0)
        return 0;
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        address found = {0};
        if (i->ifa_addr == NULL || !(i->ifa_flags & IFF_UP) ||
            !(is_v4(i->ifa_addr, &found) || is_v6(i->ifa_addr, &found)))
            continue;
        found.family = i->ifa_addr->sa_family;
        if (count < room)
            list[count] = found;
        count++;
    }
    freeifaddrs(all);
    return count;
}

struct sockaddr_storage address_for_socket(const address *a, socklen_t *bytes) {
    struct sockaddr_storage storage = {.ss_family = (sa_family_t)a->family};
    if (a->family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)&storage;
        in->sin_port = a->port;
        memcpy(&in->sin_addr, a->bytes, sizeof in->sin_addr);
        *bytes = sizeof *in;
    } else {
        struct sockaddr_in6 *in = (struct sockaddr_in6 *)&storage;
        in->sin6_port = a->port;
        memcpy(&in->sin6_addr, a->bytes, sizeof in->sin6_addr);
        *bytes = sizeof *in;
    }
    return storage;
}
