#include "comm/mesh.h"

mesh_group mesh_group_of(const mesh *m, rank_group sort) {
    switch (sort) {
    case GROUP_SHARD:
        return (mesh_group){.first = m->rank / m->group_size * m->group_size, .stride = 1, .size = m->group_size};
    case GROUP_REPLICA:
        return (mesh_group){
            .first = m->rank % m->group_size, .stride = m->group_size, .size = m->ranks / m->group_size};
    case GROUP_WORLD:
        break;
    }
    return (mesh_group){.first = 0, .stride = 1, .size = m->ranks};
}
