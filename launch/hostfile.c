#include "launch/hostfile.h"

#include "comm/patience.h"
#include "engine/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { AT_ONCE = 64, WORDS_MOST = 64 };

static const double SECONDS = 10;

/* A node of the file, and its agent. */
typedef struct node {
    char *name;
    long line;
    pid_t agent;     /* 0: has ended */
    FILE *words;     /* of the agent */
    char *complaint; /* NULL: it can be reached */
} node;

typedef struct nodes {
    node *list; /* growing */
    int count;
} nodes;

/* ---- the launcher's words ---- */

typedef struct words {
    char *text; /* cut into the words */
    char *items[WORDS_MOST];
    int count;
} words;

static words split(const char *text) {
    words w = {.text = memory_copy_string(text)};
    char *rest = NULL;
    for (char *at = strtok_r(w.text, " \t", &rest); at != NULL && w.count < WORDS_MOST;
         at = strtok_r(NULL, " \t", &rest))
        w.items[w.count++] = at;
    return w;
}

/* Both "-hostfile" and "--hostfile" are spelt by mpirun's users. */
static bool is_option(const char *word, const char *name) {
    return word[0] == '-' && strcmp(word + 1 + (word[1] == '-'), name) == 0;
}

static const char *file_of(const words *launcher) {
    for (int i = 0; i + 1 < launcher->count; i++)
        if (is_option(launcher->items[i], "hostfile") || is_option(launcher->items[i], "machinefile") ||
            is_option(launcher->items[i], "default-hostfile"))
            return launcher->items[i + 1];
    return NULL;
}

static const char *agent_of(const words *launcher) {
    for (int i = 0; i + 2 < launcher->count; i++)
        if (is_option(launcher->items[i], "mca") && strcmp(launcher->items[i + 1], "plm_rsh_agent") == 0)
            return launcher->items[i + 2];
    const char *set = getenv("OMPI_MCA_plm_rsh_agent");
    return set != NULL && set[0] != '\0' ? set : "ssh";
}

static bool in_batch_job(void) {
    static const char *const names[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) != NULL)
            return true;
    return false;
}

/* ---- the file ---- */

/* A name, then slots and the like. '+' and '^' begin what names no node; mpirun knows what they mean. */
static void add_node(nodes *n, const char *text, long line) {
    text += strspn(text, " \t");
    const size_t length = strcspn(text, " \t\r\n#");
    if (length == 0 || text[0] == '+' || text[0] == '^')
        return;
    n->list = memory_grow(n->list, (size_t)n->count + 1, sizeof *n->list);
    n->list[n->count++] = (node){.name = memory_format("%.*s", (int)length, text), .line = line};
}

static bool read_nodes(const char *path, nodes *n, error *e) {
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    if (file == NULL)
        return error_set(e, EXIT_USAGE, "hostfile %s: cannot open: %s", path, strerror(errno));
    for (long line = 1; getline(&text, &room, file) >= 0; line++)
        add_node(n, text, line);
    free(text);
    fclose(file);
    return true;
}

/* This machine, which needs no agent: an address is its own if a socket can have it. */
static bool is_here(const char *name) {
    char own[HOST_NAME_MAX + 1] = "";
    struct addrinfo *found = NULL;
    const char *at = strchr(name, '@');
    name = at != NULL ? at + 1 : name;
    gethostname(own, sizeof own - 1);
    bool here = strcmp(name, own) == 0 || strcmp(name, "localhost") == 0;
    const struct addrinfo wanted = {.ai_socktype = SOCK_DGRAM};
    if (here || getaddrinfo(name, NULL, &wanted, &found) != 0)
        return here;
    for (const struct addrinfo *a = found; a != NULL && !here; a = a->ai_next) {
        const int trial = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        here = trial >= 0 && bind(trial, a->ai_addr, a->ai_addrlen) == 0;
        if (trial >= 0)
            close(trial);
    }
    freeaddrinfo(found);
    return here;
}

/* ---- agents ---- */

/* "ssh : rsh" is a choice, of which mpirun takes the first that is there. */
static words agent_words(const char *agent, char *name) {
    static char unasked[] = "-oBatchMode=yes", soon[] = "-oConnectTimeout=8", nothing[] = "true";
    char *first = memory_format("%.*s", (int)strcspn(agent, ":"), agent);
    words w = split(first);
    free(first);
    if (w.count == 0)
        w.items[w.count++] = w.text; /* "", which cannot be started */
    w.count = w.count > WORDS_MOST - 4 ? WORDS_MOST - 4 : w.count;
    const char *slash = strrchr(w.items[0], '/');
    if (strcmp(slash != NULL ? slash + 1 : w.items[0], "ssh") == 0) {
        w.items[w.count++] = unasked;
        w.items[w.count++] = soon;
    }
    w.items[w.count++] = name;
    w.items[w.count++] = nothing;
    return w;
}

static void start_agent(node *n, const char *agent) {
    words w = agent_words(agent, n->name);
    posix_spawn_file_actions_t files;
    n->words = tmpfile();
    check(n->words != NULL, "no temporary file: %s", strerror(errno));
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, fileno(n->words), STDERR_FILENO);
    const int failure = posix_spawnp(&n->agent, w.items[0], &files, NULL, w.items, environ);
    posix_spawn_file_actions_destroy(&files);
    if (failure != 0) {
        n->agent = 0;
        n->complaint = memory_format("%s: %s", w.items[0], strerror(failure));
    }
    free(w.text);
}

/* The last line that is not empty: ssh's own says what came of it. */
static char *last_line(FILE *from) {
    char *text = NULL, *last = memory_copy_string("");
    size_t room = 0;
    rewind(from);
    while (getline(&text, &room, from) >= 0) {
        text[strcspn(text, "\r\n")] = '\0';
        if (text[0] == '\0')
            continue;
        free(last);
        last = memory_copy_string(text);
    }
    free(text);
    return last;
}

/* Whether the agent has ended. */
static bool look_at(node *n) {
    int status = 0;
    if (n->agent == 0)
        return true;
    if (waitpid(n->agent, &status, WNOHANG) == 0)
        return false;
    n->agent = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    n->complaint = last_line(n->words);
    if (n->complaint[0] == '\0') {
        free(n->complaint);
        n->complaint =
            memory_format("its agent ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    return true;
}

static void give_up(node *n) {
    if (n->agent == 0)
        return;
    kill(n->agent, SIGKILL);
    waitpid(n->agent, NULL, 0);
    n->agent = 0;
    n->complaint = memory_format("no answer within %.0f seconds", SECONDS);
}

static void ask(node *list, int count, const char *agent) {
    patience p = patience_begin();
    for (int i = 0; i < count; i++)
        if (!is_here(list[i].name))
            start_agent(&list[i], agent);
    for (bool ended = false; !ended && patience_pause(&p) < SECONDS;) {
        ended = true;
        for (int i = 0; i < count; i++)
            ended = look_at(&list[i]) && ended;
    }
    for (int i = 0; i < count; i++) {
        give_up(&list[i]);
        if (list[i].words != NULL)
            fclose(list[i].words);
    }
}

static bool check_nodes(const char *path, const nodes *n, const char *agent, error *e) {
    for (int i = 0; i < n->count; i++) {
        if (i % AT_ONCE == 0)
            ask(&n->list[i], (int)minimum(AT_ONCE, n->count - i), agent);
        if (n->list[i].complaint != NULL)
            return error_set(e, EXIT_LAUNCH,
                             "hostfile %s, line %ld: node %s cannot be reached (%s); mpirun needs every node of the "
                             "file: make \"%s %s true\" work from here without a password, or take the line out",
                             path, n->list[i].line, n->list[i].name, n->list[i].complaint, agent, n->list[i].name);
    }
    return true;
}

bool hostfile_check(const char *launcher, error *e) {
    words w = split(launcher);
    nodes n = {0};
    const char *path = file_of(&w);
    const bool good =
        path == NULL || in_batch_job() || (read_nodes(path, &n, e) && check_nodes(path, &n, agent_of(&w), e));
    for (int i = 0; i < n.count; i++) {
        free(n.list[i].name);
        free(n.list[i].complaint);
    }
    free(n.list);
    free(w.text);
    return good;
}
