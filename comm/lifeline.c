#include "comm/lifeline.h"

#include "comm/patience.h"
#include "engine/checked.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* The system gives a silent connection up after this many probes, a second apart. */
enum { PROBES = 60 };

/* A caller that has not said who it is by then is not one of ours. */
static const double GREETING_SECONDS = 5;

enum { FAMILIES = 2, NOBODY = -1 };
static const int families[FAMILIES] = {AF_INET, AF_INET6};

typedef enum word { WORD_GREETING, WORD_LEAVE, WORD_FAILURE } word;

/* All that is ever sent, from one process of this program to another: always of this size. */
typedef struct packet {
    uint64_t key;
    int32_t node; /* of the sender */
    int32_t word; /* enum word */
    failure failure;
} packet;

typedef struct connection {
    int socket;
    int node; /* at the other end; NOBODY: has not said so yet */
    bool calls, connected, greeted;
    double begun;
    packet incoming;
    size_t come; /* bytes of it */
} connection;

typedef struct neighbour {
    int node;
    lifeline_state state;
    double heard; /* on the monotonic clock */
} neighbour;

struct lifelines {
    int node, nodes;
    uint64_t key;
    int listeners[FAMILIES]; /* -1: this system does not have the family */
    uint16_t ports[FAMILIES];
    int wake; /* an event for who attends */
    neighbour neighbours[LIFELINE_NEIGHBOURS];
    int neighbour_count;
    connection *connections;
    int connection_count;
    struct pollfd *polled; /* [FAMILIES + 1 + connection_count] */
    bool told;
    failure failure;
};

/* ---- who is connected to whom ---- */

/* Of two neighbours the one calls from whom the other is fewer steps ahead; at equal distance the lower. */
static bool must_call(int from, int to, int nodes) {
    const int ahead = (to - from + nodes) % nodes, behind = nodes - ahead;
    return (ahead == 1 || ahead == 2) && (ahead < behind || (ahead == behind && from < to));
}

int lifelines_neighbours(int node, int nodes, int neighbours[LIFELINE_NEIGHBOURS]) {
    static const int steps[LIFELINE_NEIGHBOURS] = {-2, -1, 1, 2};
    int count = 0;
    for (int i = 0; i < LIFELINE_NEIGHBOURS; i++) {
        const int other = (node + steps[i] + 2 * nodes) % nodes;
        bool known = other == node;
        for (int k = 0; k < count; k++)
            known |= neighbours[k] == other;
        if (!known)
            neighbours[count++] = other;
    }
    return count;
}

/* Its place among the neighbours; NOBODY: it is none. */
static int place_of(const lifelines *l, int node) {
    for (int i = 0; i < l->neighbour_count; i++)
        if (l->neighbours[i].node == node)
            return i;
    return NOBODY;
}

static const neighbour *neighbour_of(const lifelines *l, int node) {
    const int place = place_of(l, node);
    check(place != NOBODY, "node %d is no neighbour of node %d", node, l->node);
    return &l->neighbours[place];
}

/* ---- addresses ---- */

uint16_t lifelines_port(const lifelines *l, int family) {
    for (int f = 0; f < FAMILIES; f++)
        if (families[f] == family)
            return l->ports[f];
    return 0;
}

int lifelines_addresses(const lifelines *l, address *addresses, int room) {
    const int count = address_list(addresses, room);
    for (int i = 0; i < count && i < room; i++)
        addresses[i].port = lifelines_port(l, addresses[i].family);
    return count;
}

/* ---- connections ---- */

static void set(int socket, int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof value); /* what fails here shows as silence */
}

static void add(lifelines *l, int socket, int node, bool calls) {
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(socket, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
    set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    l->connections = memory_grow(l->connections, (size_t)l->connection_count + 1, sizeof *l->connections);
    l->polled = memory_grow(l->polled, (size_t)l->connection_count + 2 + FAMILIES, sizeof *l->polled);
    connection *c = &l->connections[l->connection_count++];
    *c = (connection){.socket = socket, .node = node, .calls = calls, .connected = !calls, .begun = patience_clock()};
}

static void drop(connection *c) {
    close(c->socket);
    c->socket = -1;
}

static void forget_dropped(lifelines *l) {
    int kept = 0;
    for (int i = 0; i < l->connection_count; i++)
        if (l->connections[i].socket >= 0)
            l->connections[kept++] = l->connections[i];
    l->connection_count = kept;
}

static bool connected(const lifelines *l, int node) {
    for (int i = 0; i < l->connection_count; i++)
        if (l->connections[i].socket >= 0 && l->connections[i].greeted && l->connections[i].node == node)
            return true;
    return false;
}

/* Room for a few packets is always there, unless the other end has been gone for long. */
static void say(const lifelines *l, const connection *c, word w, const failure *f) {
    packet p;
    memset(&p, 0, sizeof p);
    p.key = l->key;
    p.node = l->node;
    p.word = w;
    if (f != NULL)
        p.failure = *f;
    (void)!send(c->socket, &p, sizeof p, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void lifelines_call(lifelines *l, int node, const address *to) {
    if (!must_call(l->node, node, l->nodes) || to->port == 0)
        return;
    const int s = socket(to->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0)
        return;
    socklen_t bytes;
    const struct sockaddr_storage there = address_for_socket(to, &bytes);
    add(l, s, node, true);
    if (connect(s, (const struct sockaddr *)&there, bytes) != 0 && errno != EINPROGRESS)
        drop(&l->connections[l->connection_count - 1]);
    forget_dropped(l);
}

static void accept_all(lifelines *l, int listener) {
    for (;;) {
        const int s = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (s < 0)
            return;
        add(l, s, NOBODY, false);
    }
}

/* A call was answered, or not. */
static void finish_call(lifelines *l, connection *c) {
    int reason = 0;
    socklen_t bytes = sizeof reason;
    if (getsockopt(c->socket, SOL_SOCKET, SO_ERROR, &reason, &bytes) != 0 || reason != 0) {
        drop(c);
        return;
    }
    c->connected = true;
    say(l, c, WORD_GREETING, NULL);
}

/* ---- what comes ---- */

/* Who called greets first, so that strangers learn nothing. */
static bool greet(lifelines *l, connection *c, const packet *p) {
    const int place = place_of(l, p->node);
    const bool expected = c->calls ? p->node == c->node : must_call(p->node, l->node, l->nodes);
    if (p->word != WORD_GREETING || place == NOBODY || !expected)
        return false;
    if (!c->calls)
        say(l, c, WORD_GREETING, NULL);
    c->node = p->node;
    c->greeted = true;
    neighbour *n = &l->neighbours[place];
    if (n->state == LIFELINE_MISSING)
        *n = (neighbour){.node = p->node, .state = LIFELINE_HELD, .heard = patience_clock()};
    return true;
}

static bool take(lifelines *l, connection *c) {
    const packet *p = &c->incoming;
    c->come = 0;
    if (p->key != l->key)
        return false;
    if (!c->greeted)
        return greet(l, c, p);
    if (p->word == WORD_LEAVE)
        l->neighbours[place_of(l, c->node)].state = LIFELINE_LEFT;
    if (p->word == WORD_FAILURE && !l->told) {
        l->told = true;
        l->failure = p->failure;
    }
    return true;
}

/* Closed by the other's system, or given up by this one, for which the silence has the word. */
static void lose(lifelines *l, connection *c, bool closed) {
    drop(c);
    if (!c->greeted || !closed || connected(l, c->node))
        return;
    neighbour *n = &l->neighbours[place_of(l, c->node)];
    if (n->state == LIFELINE_HELD)
        n->state = LIFELINE_ENDED;
}

static void read_packets(lifelines *l, connection *c) {
    for (;;) {
        const ssize_t come = recv(c->socket, (char *)&c->incoming + c->come, sizeof c->incoming - c->come, 0);
        if (come < 0 && errno == EINTR)
            continue;
        if (come < 0 && errno == EAGAIN)
            return;
        if (come <= 0) {
            lose(l, c, come == 0 || errno == ECONNRESET);
            return;
        }
        c->come += (size_t)come;
        if (c->come == sizeof c->incoming && !take(l, c)) {
            drop(c);
            return;
        }
    }
}

/* ---- attending ---- */

/* What the system knows of the other one: when it last acknowledged anything, probes included. */
static void listen_closely(lifelines *l, const connection *c, double now) {
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info);
    if (!c->greeted || getsockopt(c->socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return;
    neighbour *n = &l->neighbours[place_of(l, c->node)];
    const uint32_t since =
        info.tcpi_last_ack_recv < info.tcpi_last_data_recv ? info.tcpi_last_ack_recv : info.tcpi_last_data_recv;
    n->heard = fmax(n->heard, now - since * 1e-3);
}

static int list_polled(lifelines *l) {
    int count = 0;
    l->polled[count++] = (struct pollfd){.fd = l->wake, .events = POLLIN};
    for (int f = 0; f < FAMILIES; f++)
        l->polled[count++] = (struct pollfd){.fd = l->listeners[f], .events = POLLIN};
    for (int i = 0; i < l->connection_count; i++)
        l->polled[count++] =
            (struct pollfd){.fd = l->connections[i].socket, .events = l->connections[i].connected ? POLLIN : POLLOUT};
    return count;
}

void lifelines_attend(lifelines *l, double seconds) {
    uint64_t ignored;
    poll(l->polled, (nfds_t)list_polled(l), (int)ceil(fmax(seconds, 0) * 1e3));
    (void)!read(l->wake, &ignored, sizeof ignored);
    const double now = patience_clock();
    for (int i = 0; i < l->connection_count; i++) {
        connection *c = &l->connections[i];
        if (!c->connected && (l->polled[1 + FAMILIES + i].revents & (POLLOUT | POLLERR | POLLHUP)))
            finish_call(l, c);
        if (c->socket >= 0 && c->connected)
            read_packets(l, c);
        if (c->socket >= 0 && !c->greeted && now - c->begun > GREETING_SECONDS)
            drop(c);
        if (c->socket >= 0)
            listen_closely(l, c, now);
    }
    forget_dropped(l);
    for (int f = 0; f < FAMILIES; f++)
        if (l->listeners[f] >= 0)
            accept_all(l, l->listeners[f]);
}

void lifelines_wake(lifelines *l) {
    const uint64_t one = 1;
    (void)!write(l->wake, &one, sizeof one);
}

lifeline_state lifelines_state(const lifelines *l, int node) {
    return neighbour_of(l, node)->state;
}

double lifelines_silence(const lifelines *l, int node) {
    return patience_clock() - neighbour_of(l, node)->heard;
}

static void say_to_all(lifelines *l, word w, const failure *f) {
    for (int i = 0; i < l->connection_count; i++)
        if (l->connections[i].greeted)
            say(l, &l->connections[i], w, f);
}

void lifelines_tell(lifelines *l, const failure *f) {
    say_to_all(l, WORD_FAILURE, f);
}

bool lifelines_told(const lifelines *l, failure *f) {
    if (l->told)
        *f = l->failure;
    return l->told;
}

/* ---- opening ---- */

static bool listen_at(lifelines *l, int f) {
    const int s = socket(families[f], SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0)
        return errno == EAFNOSUPPORT;
    l->listeners[f] = s;
    if (families[f] == AF_INET6)
        set(s, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    const address any = {.family = families[f]};
    socklen_t bytes;
    struct sockaddr_storage here = address_for_socket(&any, &bytes);
    if (bind(s, (const struct sockaddr *)&here, bytes) != 0)
        return false;
    if (listen(s, SOMAXCONN) != 0 || getsockname(s, (struct sockaddr *)&here, &bytes) != 0)
        return false;
    l->ports[f] = families[f] == AF_INET ? ((const struct sockaddr_in *)&here)->sin_port
                                         : ((const struct sockaddr_in6 *)&here)->sin6_port;
    return true;
}

static void release(lifelines *l) {
    for (int i = 0; i < l->connection_count; i++)
        close(l->connections[i].socket);
    for (int f = 0; f < FAMILIES; f++)
        if (l->listeners[f] >= 0)
            close(l->listeners[f]);
    if (l->wake >= 0)
        close(l->wake);
    free(l->connections);
    free(l->polled);
    free(l);
}

bool lifelines_open(int node, int nodes, uint64_t key, lifelines **opened, error *e) {
    int neighbours[LIFELINE_NEIGHBOURS];
    lifelines *l = memory_allocate(1, sizeof *l);
    *l = (lifelines){.node = node, .nodes = nodes, .key = key, .listeners = {-1, -1}};
    l->polled = memory_allocate(FAMILIES + 1, sizeof *l->polled);
    l->neighbour_count = lifelines_neighbours(node, nodes, neighbours);
    for (int i = 0; i < l->neighbour_count; i++)
        l->neighbours[i] = (neighbour){.node = neighbours[i]};
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool good = l->wake >= 0;
    for (int f = 0; f < FAMILIES && good; f++)
        good = listen_at(l, f);
    if (!good) {
        error_set_own(e, EXIT_LAUNCH, "cannot listen for the other nodes: %s", strerror(errno));
        release(l);
        return false;
    }
    *opened = l;
    return true;
}

void lifelines_close(lifelines *l) {
    say_to_all(l, WORD_LEAVE, NULL);
    release(l);
}
