/* Private to comm/: internet addresses, in a form that nodes exchange. */
#ifndef FSDP_COMM_ADDRESS_H
#define FSDP_COMM_ADDRESS_H

#include <stdint.h>
#include <sys/socket.h>

/* Of internet protocol version 4 or 6. */
typedef struct address {
    int32_t family; /* AF_INET, AF_INET6 */
    uint16_t port;  /* in network order, like the bytes; 0: nobody is there */
    uint8_t bytes[16];
} address;

/* The addresses at which other nodes may reach this one, without port. Writes at most `room`, returns how many there
 * are. */
int address_list(address *list, int room);

/* *bytes: how many of it count. */
struct sockaddr_storage address_for_socket(const address *a, socklen_t *bytes);

#endif
