#include "comm/messages.h"

#include "comm/parts.h"
#include "comm/world_mpi.h"
#include "engine/checked.h"

#include <limits.h>
#include <stdlib.h>

/* Tags: a failure, a report in a hang, then one per collective and round. */
enum { TAG_FAILURE, TAG_REPORT, TAG_FIRST };

typedef enum message_round { ROUND_PARTS, ROUND_SUMS, ROUND_COUNT } message_round;

typedef struct course { /* the messages of one collective */
    MPI_Datatype type;
    int own;                       /* this rank's place in the group */
    MPI_Request *sends, *receives; /* [group_size], MPI_REQUEST_NULL: none under way */
} course;

struct messages {
    MPI_Comm communicator;
    char *arena, *workspace;
    const collective *list;
    int32_t count;
    course *courses;
    MPI_Request *requests; /* all of them */
    bool *far;
    int size;
    bool failed;      /* a failure was sent */
    failure outgoing; /* kept here while it is under way */
    failure incoming;
    hang_report report; /* of this rank, while it is under way */
    MPI_Request failure_receive;
};

static int tag_of(int32_t index, message_round round) {
    return TAG_FIRST + index * ROUND_COUNT + (int)round;
}

static MPI_Datatype mpi_type(dtype type) {
    switch (type) {
    case DTYPE_F32:
        return MPI_FLOAT;
    case DTYPE_F64:
        return MPI_DOUBLE;
    case DTYPE_I32:
        return MPI_INT32_T;
    default:
        return MPI_INT16_T; /* 16-bit formats are only moved */
    }
}

static bool check_limits(MPI_Comm communicator, const collective *list, int32_t count, error *e) {
    int found = 0;
    void *bound = NULL;
    MPI_Comm_get_attr(communicator, MPI_TAG_UB, &bound, &found);
    if (found && (int64_t)count * ROUND_COUNT + TAG_FIRST > *(int *)bound)
        return error_set(e, EXIT_LAUNCH, "a step of %d collectives has more than MPI's %d message tags", count,
                         *(int *)bound);
    for (int32_t i = 0; i < count; i++)
        if (list[i].count > INT_MAX)
            return error_set(e, EXIT_LAUNCH, "%s: parts of %lld elements are too large for one MPI message",
                             list[i].name, (long long)list[i].count);
    return true;
}

bool messages_open(const world *w, const bool *far, const collectives_settings *settings, const collective *list,
                   int32_t count, messages **opened, error *e) {
    MPI_Comm communicator;
    if (!world_mpi_duplicate(w, &communicator))
        return error_set(e, EXIT_LAUNCH, "ranks of one process do not exchange messages");
    if (!check_limits(communicator, list, count, e)) {
        MPI_Comm_free(&communicator);
        return false;
    }
    messages *m = memory_allocate(1, sizeof *m);
    *m = (messages){
        .communicator = communicator, .arena = settings->arena->base, .list = list, .count = count, .size = w->size};
    m->workspace = m->arena + settings->workspace;
    m->far = memory_allocate((size_t)w->size, sizeof *m->far);
    for (int r = 0; r < w->size; r++)
        m->far[r] = far[r];
    int64_t members = 0;
    for (int32_t i = 0; i < count; i++)
        members += list[i].group_size;
    m->requests = memory_allocate((size_t)members * 2, sizeof *m->requests);
    for (int64_t i = 0; i < members * 2; i++)
        m->requests[i] = MPI_REQUEST_NULL;
    m->courses = memory_allocate((size_t)count, sizeof *m->courses);
    MPI_Request *next = m->requests;
    for (int32_t i = 0; i < count; i++, next += 2 * (int64_t)list[i - 1].group_size)
        m->courses[i] = (course){.type = mpi_type(list[i].type),
                                 .own = member_of(&list[i], w->rank),
                                 .sends = next,
                                 .receives = next + list[i].group_size};
    MPI_Irecv(&m->incoming, sizeof m->incoming, MPI_BYTE, MPI_ANY_SOURCE, TAG_FAILURE, communicator,
              &m->failure_receive);
    *opened = m;
    return true;
}

void messages_close(messages *m) {
    if (m->failure_receive != MPI_REQUEST_NULL) {
        MPI_Cancel(&m->failure_receive);
        MPI_Wait(&m->failure_receive, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&m->communicator);
    free(m->requests);
    free(m->courses);
    free(m->far);
    free(m);
}

static bool is_far(const messages *m, int32_t index, int member) {
    return m->far[rank_of(&m->list[index], member)];
}

static void send(messages *m, int32_t index, int member, message_round round, const void *data, int64_t count) {
    const course *o = &m->courses[index];
    MPI_Isend(data, (int)count, o->type, rank_of(&m->list[index], member), tag_of(index, round), m->communicator,
              &o->sends[member]);
}

static void receive(messages *m, int32_t index, int member, message_round round, void *data, int64_t count) {
    const course *o = &m->courses[index];
    MPI_Irecv(data, (int)count, o->type, rank_of(&m->list[index], member), tag_of(index, round), m->communicator,
              &o->receives[member]);
}

static char *slot_of(const messages *m, int32_t index, int member) {
    int64_t slot = 0;
    for (int k = 0; k < member; k++)
        slot += is_far(m, index, k);
    return m->workspace + slot * slot_bytes(&m->list[index]);
}

const void *messages_slot(const messages *m, int32_t index, int member) {
    return slot_of(m, index, member);
}

/* Where a member's part lies in the whole tensor that starts at `offset` of the arena. */
static char *place_of(const messages *m, int32_t index, int64_t offset, int member) {
    const collective *o = &m->list[index];
    return m->arena + offset + part_start(o, member) * dtype_bytes(o->type);
}

void messages_send_parts(messages *m, int32_t index) {
    const collective *o = &m->list[index];
    int own = m->courses[index].own;
    for (int k = 0; k < o->group_size; k++) {
        if (!is_far(m, index, k))
            continue;
        if (sums(o))
            send(m, index, k, ROUND_PARTS, place_of(m, index, o->input, k), part_count(o, k));
        else
            send(m, index, k, ROUND_PARTS, m->arena + o->input, part_count(o, own));
    }
}

void messages_receive_parts(messages *m, int32_t index) {
    const collective *o = &m->list[index];
    int own = m->courses[index].own;
    for (int k = 0; k < o->group_size; k++) {
        if (!is_far(m, index, k))
            continue;
        if (sums(o))
            receive(m, index, k, ROUND_PARTS, slot_of(m, index, k), part_count(o, own));
        else
            receive(m, index, k, ROUND_PARTS, place_of(m, index, o->output, k), part_count(o, k));
    }
}

void messages_exchange_sums(messages *m, int32_t index) {
    const collective *o = &m->list[index];
    int own = m->courses[index].own;
    for (int k = 0; k < o->group_size; k++) {
        if (!is_far(m, index, k))
            continue;
        receive(m, index, k, ROUND_SUMS, place_of(m, index, o->output, k), part_count(o, k));
        send(m, index, k, ROUND_SUMS, place_of(m, index, o->output, own), part_count(o, own));
    }
}

static bool over(MPI_Request *request) {
    int done = 1;
    if (*request != MPI_REQUEST_NULL)
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
    return done;
}

bool messages_sent(messages *m, int32_t index, int member) {
    return over(&m->courses[index].sends[member]);
}

bool messages_received(messages *m, int32_t index, int member) {
    return over(&m->courses[index].receives[member]);
}

bool messages_all_sent(messages *m, int32_t index) {
    for (int k = 0; k < m->list[index].group_size; k++)
        if (!messages_sent(m, index, k))
            return false;
    return true;
}

/* Completes while this rank waits in the agreement that follows. */
static void tell_far_ranks(messages *m, const void *what, size_t bytes, int tag) {
    for (int r = 0; r < m->size; r++) {
        MPI_Request request;
        if (!m->far[r])
            continue;
        MPI_Isend(what, (int)bytes, MPI_BYTE, r, tag, m->communicator, &request);
        MPI_Request_free(&request);
    }
}

void messages_fail(messages *m, const failure *f) {
    if (m->failed)
        return;
    m->failed = true;
    m->outgoing = *f;
    tell_far_ranks(m, &m->outgoing, sizeof m->outgoing, TAG_FAILURE);
}

bool messages_failed(messages *m, failure *f) {
    if (!over(&m->failure_receive))
        return false;
    *f = m->incoming;
    return true;
}

void messages_report(messages *m, const hang_report *mine) {
    m->report = *mine;
    tell_far_ranks(m, &m->report, sizeof m->report, TAG_REPORT);
}

void messages_take_reports(messages *m, hang_report *all) {
    MPI_Status status;
    for (int come = 0;;) {
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_REPORT, m->communicator, &come, &status);
        if (!come)
            return;
        MPI_Recv(&all[status.MPI_SOURCE], sizeof *all, MPI_BYTE, status.MPI_SOURCE, TAG_REPORT, m->communicator,
                 MPI_STATUS_IGNORE);
    }
}
