# An ordinary user with a group that was delegated to them; then one without.
group=/sys/fs/cgroup/delegated
mkdir $group
echo 200M > $group/memory.max
mkdir $group/session
chown 1000 $group $group/cgroup.procs $group/cgroup.subtree_control $group/cgroup.threads
chown 1000 $group/session $group/session/cgroup.procs
mkdir -m 700 /tmp/run
chown 1000 /tmp/run
export XDG_RUNTIME_DIR=/tmp/run
user="setpriv.real --reuid 1000 --regid 1000 --clear-groups"
cat > /tmp/user.sh <<'X'
ullage memory run -- sh -c 'echo "@@user-group $(cat /proc/self/cgroup)"; sleep 1; echo "@@user $(ullage memory status --json)"; exit 7'
echo "@@user-code $?"
X
sh -c "echo \$\$ > $group/session/cgroup.procs; exec $user sh /tmp/user.sh"
sleep 1
echo "@@user-left $(ls -d $group/ullage* 2> /dev/null)"
echo "@@user-control $(cat $group/cgroup.subtree_control)"
echo "@@undelegated $($user ullage memory daemon 2>&1 | tr '\n' ' ')"
