/* What the heartbeat between nodes is made of: lifelines, among "nodes" in this process and in child processes, and
 * what is said of a loss. Whole runs over nodes that lose each other: launch_nodes.sh. */
#include "comm/lifeline.h"
#include "comm/loss.h"
#include "comm/patience.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_NODES = 7 };
static const uint64_t KEY = 0x1234567890abcdef;

/* ---- nodes ---- */

static lifelines *open_node(int node, int nodes, uint64_t key) {
    lifelines *opened = NULL;
    error e = {0};
    if (!lifelines_open(node, nodes, key, &opened, &e))
        fail_msg("%s", e.message);
    return opened;
}

static address loopback_at(uint16_t port) {
    address a = {.family = AF_INET, .port = port};
    const uint32_t loopback = htonl(INADDR_LOOPBACK);
    memcpy(a.bytes, &loopback, sizeof loopback);
    return a;
}

static void call_neighbours(lifelines **l, int node, int nodes) {
    int neighbours[LIFELINE_NEIGHBOURS];
    const int count = lifelines_neighbours(node, nodes, neighbours);
    for (int i = 0; i < count; i++) {
        const address a = loopback_at(lifelines_port(l[neighbours[i]], AF_INET));
        lifelines_call(l[node], neighbours[i], &a);
    }
}

/* Whether a node sees all its neighbours in this state. */
static bool sees(const lifelines *l, int node, int nodes, lifeline_state state) {
    int neighbours[LIFELINE_NEIGHBOURS];
    const int count = lifelines_neighbours(node, nodes, neighbours);
    for (int i = 0; i < count; i++)
        if (lifelines_state(l, neighbours[i]) != state)
            return false;
    return true;
}

static bool all_see(lifelines **l, int nodes, lifeline_state state) {
    const double begun = patience_clock();
    bool seen = false;
    while (!seen && patience_clock() - begun < 10) {
        seen = true;
        for (int node = 0; node < nodes; node++) {
            lifelines_attend(l[node], 0.001);
            seen &= sees(l[node], node, nodes, state);
        }
    }
    return seen;
}

static void open_ring(lifelines **l, int nodes) {
    for (int node = 0; node < nodes; node++)
        l[node] = open_node(node, nodes, KEY);
    for (int node = 0; node < nodes; node++)
        call_neighbours(l, node, nodes);
    assert_true(all_see(l, nodes, LIFELINE_HELD));
}

static bool state_becomes(lifelines *l, int node, lifeline_state state) {
    const double begun = patience_clock();
    while (lifelines_state(l, node) != state && patience_clock() - begun < 10)
        lifelines_attend(l, 0.05);
    return lifelines_state(l, node) == state;
}

/* ---- lifelines ---- */

static void nodes_are_neighbours_of_their_neighbours(void **state) {
    (void)state;
    for (int nodes = 1; nodes <= 9; nodes++)
        for (int node = 0; node < nodes; node++) {
            int own[LIFELINE_NEIGHBOURS], other[LIFELINE_NEIGHBOURS];
            const int count = lifelines_neighbours(node, nodes, own);
            assert_int_equal(count, nodes > 4 ? 4 : nodes - 1);
            for (int i = 0; i < count; i++) {
                const int others = lifelines_neighbours(own[i], nodes, other);
                int mutual = 0;
                for (int k = 0; k < others; k++)
                    mutual += other[k] == node;
                assert_int_equal(mutual, 1);
                assert_int_not_equal(own[i], node);
            }
        }
}

static void every_pair_is_connected_and_takes_leave(void **state) {
    (void)state;
    for (int nodes = 2; nodes <= MOST_NODES; nodes++) {
        lifelines *l[MOST_NODES];
        open_ring(l, nodes);
        lifelines_close(l[nodes - 1]);
        int left[LIFELINE_NEIGHBOURS];
        const int count = lifelines_neighbours(nodes - 1, nodes, left);
        for (int i = 0; i < count; i++)
            assert_true(state_becomes(l[left[i]], nodes - 1, LIFELINE_LEFT));
        for (int node = 0; node < nodes - 1; node++)
            lifelines_close(l[node]);
    }
}

static void a_failure_is_told(void **state) {
    (void)state;
    lifelines *l[5];
    failure told = {.speaker = 3};
    error_set(&told.error, EXIT_LAUNCH, "something happened");
    open_ring(l, 5);
    lifelines_tell(l[2], &told);
    for (int node = 0; node < 5; node++) {
        const double begun = patience_clock();
        failure heard = {0};
        while (node != 2 && !lifelines_told(l[node], &heard) && patience_clock() - begun < 10)
            lifelines_attend(l[node], 0.05);
        assert_int_equal(heard.speaker, node == 2 ? 0 : 3);
        assert_string_equal(heard.error.message, node == 2 ? "" : "something happened");
    }
    for (int node = 0; node < 5; node++)
        lifelines_close(l[node]);
}

/* Neither a node of another job nor anything else that calls. */
static void strangers_are_ignored(void **state) {
    (void)state;
    lifelines *ours[2] = {open_node(0, 2, KEY), open_node(1, 2, KEY)}, *other = open_node(0, 2, KEY + 1);
    const address second = loopback_at(lifelines_port(ours[1], AF_INET));
    lifelines_call(other, 1, &second);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = second.port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(s, (struct sockaddr *)&to, sizeof to), 0);
    char noise[5000];
    memset(noise, 'x', sizeof noise);
    assert_int_equal(send(s, noise, sizeof noise, MSG_NOSIGNAL), sizeof noise);
    for (int i = 0; i < 20; i++) {
        lifelines_attend(other, 0.01);
        lifelines_attend(ours[1], 0.01);
    }
    assert_int_equal(lifelines_state(ours[1], 0), LIFELINE_MISSING);
    assert_int_equal(lifelines_state(other, 1), LIFELINE_MISSING);
    assert_true(recv(s, noise, sizeof noise, 0) <= 0); /* hung up, without a word */
    lifelines_call(ours[0], 1, &second);
    assert_true(all_see(ours, 2, LIFELINE_HELD));
    close(s);
    lifelines_close(other);
    lifelines_close(ours[0]);
    lifelines_close(ours[1]);
}

/* A process that stands still does not attend to anything; its system answers. One that dies takes no leave. */
static void a_stopped_process_is_held_and_a_dead_one_ended(void **state) {
    (void)state;
    int port[2];
    assert_int_equal(pipe(port), 0);
    const pid_t child = fork();
    if (child == 0) {
        lifelines *theirs = open_node(1, 2, KEY);
        const uint16_t number = lifelines_port(theirs, AF_INET);
        if (write(port[1], &number, sizeof number) == sizeof number)
            for (;;)
                lifelines_attend(theirs, 1);
        _exit(1);
    }
    uint16_t number = 0;
    assert_int_equal(read(port[0], &number, sizeof number), sizeof number);
    lifelines *own = open_node(0, 2, KEY);
    const address a = loopback_at(number);
    lifelines_call(own, 1, &a);
    assert_true(state_becomes(own, 1, LIFELINE_HELD));
    kill(child, SIGSTOP);
    const double begun = patience_clock();
    while (patience_clock() - begun < 2.6)
        lifelines_attend(own, 0.1);
    assert_int_equal(lifelines_state(own, 1), LIFELINE_HELD);
    assert_true(lifelines_silence(own, 1) < 1.6); /* a probe a second, and a loaded machine */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(state_becomes(own, 1, LIFELINE_ENDED));
    lifelines_close(own);
    close(port[0]);
    close(port[1]);
}

static void anybody_can_end_the_wait(void **state) {
    (void)state;
    lifelines *l = open_node(0, 2, KEY);
    const double begun = patience_clock();
    lifelines_wake(l);
    lifelines_attend(l, 60);
    assert_true(patience_clock() - begun < 10);
    lifelines_close(l);
}

/* ---- silence ---- */

static bool switch_loopback(bool up) {
    struct ifreq request = {.ifr_name = "lo"};
    const int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = s >= 0 && ioctl(s, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    good = good && ioctl(s, SIOCSIFFLAGS, &request) == 0;
    close(s);
    return good;
}

/* The last test, since this process stays in a network of its own. */
static void a_network_that_is_down_is_silence(void **state) {
    (void)state;
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        print_message("SKIPPED: network namespaces are not permitted here\n");
        skip();
    }
    assert_true(switch_loopback(true));
    lifelines *l[2];
    open_ring(l, 2);
    assert_true(switch_loopback(false));
    const double begun = patience_clock();
    while (patience_clock() - begun < 2.5)
        for (int node = 0; node < 2; node++)
            lifelines_attend(l[node], 0.05);
    for (int node = 0; node < 2; node++) {
        assert_true(lifelines_silence(l[node], 1 - node) > 2.2);
        assert_int_equal(lifelines_state(l[node], 1 - node), LIFELINE_HELD);
    }
    assert_true(switch_loopback(true)); /* a hiccup */
    const double again = patience_clock();
    while (lifelines_silence(l[0], 1) > 1 && patience_clock() - again < 10)
        lifelines_attend(l[0], 0.05);
    assert_true(lifelines_silence(l[0], 1) < 1);
    lifelines_close(l[0]);
    lifelines_close(l[1]);
}

/* ---- what is said ---- */

static void who_is_lost_is_named(void **state) {
    (void)state;
    static const int node_of[] = {0, 0, 1, 1, 2};
    char hosts[3][HOST_NAME_BYTES] = {"alpha", "beta", "gamma"};
    const roster r = {.size = 5, .nodes = 3, .node_of = node_of, .hosts = hosts};
    failure f = loss_of_rank(&r, 3);
    assert_string_equal(f.error.message, "rank 3 has died, on node beta (ranks 2-3)");
    assert_int_equal(f.error.code, EXIT_LAUNCH);
    assert_int_equal(f.speaker, 0);
    f = loss_of_rank(&r, 0);
    assert_string_equal(f.error.message, "rank 0 has died, perhaps with its whole node alpha (ranks 0-1)");
    assert_int_equal(f.speaker, 2);
    f = loss_of_node(&r, 0, 5.25, 2);
    assert_non_null(
        strstr(f.error.message, "node alpha (ranks 0-1) is lost: it has not answered gamma for 5.2 seconds"));
    assert_int_equal(f.speaker, 2);
    f = loss_of_all_others(&r, 5, 2);
    assert_non_null(strstr(f.error.message, "node gamma (rank 4) has lost the other nodes"));
    assert_int_equal(f.speaker, 4);
    assert_false(f.hang);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nodes_are_neighbours_of_their_neighbours),
                                       cmocka_unit_test(every_pair_is_connected_and_takes_leave),
                                       cmocka_unit_test(a_failure_is_told),
                                       cmocka_unit_test(strangers_are_ignored),
                                       cmocka_unit_test(a_stopped_process_is_held_and_a_dead_one_ended),
                                       cmocka_unit_test(anybody_can_end_the_wait),
                                       cmocka_unit_test(who_is_lost_is_named),
                                       cmocka_unit_test(a_network_that_is_down_is_silence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
