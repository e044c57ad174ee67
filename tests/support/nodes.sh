# shellcheck shell=bash
# Sourced by launch_nodes.sh: several nodes on one machine. A node is a network namespace with its own address and host
# name, joined to the others by a bridge; mpirun reaches it through an agent that enters the namespace instead of ssh.
#
#   in_a_world_of_its_own ARGUMENT ...   starts the calling script again where all of this leaves no trace; ends it with
#                                        77, saying why, where this system does not permit that
#   make_nodes COUNT                     node1, node2, ... at 10.213.7.1, .2, ...; ./hosts lists them, two slots each
#   over_nodes RANKS COMMAND ...         mpirun over ./hosts; nodes_launcher prints its words

in_a_world_of_its_own() {
    local refused
    if ! command -v ip > /dev/null; then
        echo "SKIPPED: ip (Debian package iproute2) is not installed"
        exit 77
    fi
    if ! refused=$(unshare --net --mount --uts -- ip link add name trial type bridge 2>&1); then
        echo "SKIPPED: network namespaces are not permitted here: $refused"
        exit 77
    fi
    FSDP_TEST_NODES=1 exec unshare --net --mount --uts -- bash "$0" "$@"
}

make_nodes() {
    local i
    mount -t tmpfs tmpfs /run # where ip keeps the names of namespaces
    ip link set lo up
    ip link add switch type bridge
    ip addr add 10.213.7.254/24 dev switch
    ip link set switch up
    : > hosts
    for ((i = 1; i <= $1; i++)); do
        ip netns add "node$i"
        ip link add "cable$i" type veth peer name card netns "node$i"
        ip link set "cable$i" master switch up
        ip -n "node$i" addr add "10.213.7.$i/24" dev card
        ip -n "node$i" link set card up
        ip -n "node$i" link set lo up
        echo "node$i slots=2" >> hosts
    done
    cat > agent << 'END'
#!/usr/bin/env bash
node=$1
shift
exec ip netns exec "$node" unshare --uts -- bash -c "hostname $node; $*"
END
    chmod +x agent
}

nodes_launcher() { # its words, without the number of ranks
    echo "mpirun --hostfile hosts --bind-to none --mca plm_rsh_agent $PWD/agent --mca oob_tcp_if_include 10.213.7.0/24" \
        "--mca btl_tcp_if_include 10.213.7.0/24 --mca btl tcp,self,vader --mca pml ob1"
}

over_nodes() { # RANKS COMMAND ...
    local ranks=$1
    shift
    # shellcheck disable=SC2046 # several words
    timeout 120 $(nodes_launcher) -np "$ranks" "$@"
}
