#include "launch/hostfile.h"

#include "comm/patience.h"
#include "engine/checked.h"
#include "launch/words.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_ONCE = 64 };

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

/* Both "-hostfile" and "--hostfile" are spelt by mpirun's users. */
static bool is_option(const char *word, const char *name) {
    return word[0] == '-' && strcmp(word + 1 + (word[1] == '-'), name) == 0;
}

static const char *file_of(const words *launcher) {
    for (size_t i = 0; i + 1 < launcher->count; i++)
        if (is_option(launcher->items[i], "hostfile") || is_option(launcher->items[i], "machinefile") ||
            is_option(launcher->items[i], "default-hostfile"))
            return launcher->items[i + 1];
    return NULL;
}

static const char *agents_of(const words *launcher) {
    for (size_t i = 0; i + 2 < launcher->count; i++)
        if (is_option(launcher->items[i], "mca") && strcmp(launcher->items[i + 1], "plm_rsh_agent") == 0)
            return launcher->items[i + 2];
    const char *set = getenv("OMPI_MCA_plm_rsh_agent");
    return set != NULL && set[0] != '\0' ? set : "ssh : rsh";
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

static bool in_path(const char *program) {
    const char *path = getenv("PATH");
    words folders = {0};
    bool found = false;
    words_add_split(&folders, path != NULL ? path : "", ":");
    for (size_t i = 0; i < folders.count && !found; i++) {
        char *file = memory_format("%s/%s", folders.items[i], program);
        found = access(file, X_OK) == 0;
        free(file);
    }
    words_free(&folders);
    return found;
}

static bool is_there(const char *agent) {
    words w = {0};
    words_add_split(&w, agent, " \t");
    const bool there =
        w.count > 0 && (strchr(w.items[0], '/') != NULL ? access(w.items[0], X_OK) == 0 : in_path(w.items[0]));
    words_free(&w);
    return there;
}

/* "ssh : rsh" is a choice, of which mpirun takes the first that is there. Where none is, the first is complained of. */
static words choose_agent(const char *agents) {
    words choice = {0}, agent = {0};
    words_add_split(&choice, agents, ":");
    size_t chosen = 0;
    while (chosen < choice.count && !is_there(choice.items[chosen]))
        chosen++;
    if (choice.count > 0)
        words_add_split(&agent, choice.items[chosen < choice.count ? chosen : 0], " \t");
    if (agent.count == 0)
        words_add_copy(&agent, ""); /* which cannot be started */
    words_free(&choice);
    return agent;
}

static words command_of(const words *agent, const char *name) {
    words w = {0};
    for (size_t i = 0; i < agent->count; i++)
        words_add_copy(&w, agent->items[i]);
    const char *slash = strrchr(w.items[0], '/');
    if (strcmp(slash != NULL ? slash + 1 : w.items[0], "ssh") == 0) {
        words_add_copy(&w, "-oBatchMode=yes");
        words_add_copy(&w, "-oConnectTimeout=8");
    }
    words_add_copy(&w, name);
    words_add_copy(&w, "true");
    return w;
}

/* The process of its own that a node gets, as to resolve a name may take long. */
static _Noreturn void become_agent(const node *n, const words *command) {
    const int nothing = open("/dev/null", O_RDWR);
    if (is_here(n->name))
        _exit(0);
    if (dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDOUT_FILENO) >= 0 &&
        dup2(fileno(n->words), STDERR_FILENO) >= 0)
        execvp(command->items[0], command->items);
    dprintf(fileno(n->words), "%s: %s\n", command->items[0], strerror(errno));
    _exit(127);
}

static void start_agent(node *n, const words *agent) {
    words command = command_of(agent, n->name);
    n->words = tmpfile();
    check(n->words != NULL, "no temporary file: %s", strerror(errno));
    n->agent = fork();
    if (n->agent == 0)
        become_agent(n, &command);
    check(n->agent > 0, "no process for %s: %s", command.items[0], strerror(errno));
    words_free(&command);
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
    const pid_t ended = waitpid(n->agent, &status, WNOHANG);
    if (ended == 0)
        return false;
    check(ended == n->agent, "an agent cannot be waited for: %s", strerror(errno));
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

static void ask(node *list, int count, const words *agent) {
    for (int i = 0; i < count; i++)
        start_agent(&list[i], agent);
    patience p = patience_begin();
    for (bool ended = false; !ended && patience_pause(&p) < SECONDS;) {
        ended = true;
        for (int i = 0; i < count; i++)
            ended = look_at(&list[i]) && ended;
    }
    for (int i = 0; i < count; i++) {
        give_up(&list[i]);
        fclose(list[i].words);
    }
}

static bool refuse(const char *path, const node *n, const words *agent, error *e) {
    char *typed = words_join(agent);
    error_set(e, EXIT_LAUNCH,
              "hostfile %s, line %ld: node %s cannot be reached (%s); mpirun needs every node of the file: make \"%s "
              "%s true\" work from here without a password, or take the line out",
              path, n->line, n->name, n->complaint, typed, n->name);
    free(typed);
    return false;
}

static bool check_nodes(const char *path, const nodes *n, const words *agent, error *e) {
    for (int i = 0; i < n->count; i++) {
        if (i % AT_ONCE == 0)
            ask(&n->list[i], (int)minimum(AT_ONCE, n->count - i), agent);
        if (n->list[i].complaint != NULL)
            return refuse(path, &n->list[i], agent, e);
    }
    return true;
}

bool hostfile_check(const char *launcher, error *e) {
    words w = {0};
    nodes n = {0};
    words_add_split(&w, launcher, " \t");
    words agent = choose_agent(agents_of(&w));
    const char *path = file_of(&w);
    const bool good = path == NULL || in_batch_job() || (read_nodes(path, &n, e) && check_nodes(path, &n, &agent, e));
    for (int i = 0; i < n.count; i++) {
        free(n.list[i].name);
        free(n.list[i].complaint);
    }
    free(n.list);
    words_free(&agent);
    words_free(&w);
    return good;
}
