# A user works, goes away while a hog is lent the memory, and comes back.
box=/sys/fs/cgroup/box
mkdir $box
echo 256M > $box/memory.max
echo +memory > $box/cgroup.subtree_control
mkdir $box/user
mkfifo /tmp/orders
sh -c "echo \$\$ > $box/user/cgroup.procs; exec ullage memory load 60000000 --cold 40000000" < /tmp/orders > /tmp/lines &
exec 3> /tmp/orders
sleep 2
ullage memory daemon --box $box --speed-up ${SPEED:-20} ${SAMPLER:+--sampler $SAMPLER} &
daemon=$!
sleep 1
echo work >&3
sleep ${WORK:-18}
echo rest >&3
ullage memory run -- ullage memory load 400000000 --hog &
# Under emulation, beside other tests, it takes as long as it takes.
for second in $(seq 60); do
    sleep 1
    status=$(ullage memory status --json)
    lent=$(echo "$status" | sed 's/.*"picture":{[^}]*"contributed":\([0-9]*\).*/\1/')
    [ "$lent" -ge 44000 ] && break
done
sleep 3
echo "@@away $(ullage memory status --json)"
seconds=$(grep -c . /tmp/lines)
echo work >&3
sleep 6
echo "@@faults $(tail -n +$((seconds + 1)) /tmp/lines | sed 's/.*"faults":\([0-9]*\).*/\1/' | awk '{sum += $1} END {print sum + 0}')"
echo "@@operations $(tail -n +$((seconds + 1)) /tmp/lines | sed 's/.*"operations":\([0-9]*\).*/\1/' | awk '{sum += $1} END {print sum + 0}')"
kill -TERM $daemon
wait $daemon
echo "@@ended $?"
# The guard comes a moment later, and takes its lock there once more before it ends.
sleep 2
for moment in $(seq 40); do [ -e /run/ullage/memory ] || break; sleep 0.5; done
echo "@@left $(ls -d $box/ullage* 2> /dev/null) $(ls /run/ullage 2> /dev/null)"
echo "@@high $(cat $box/user/memory.high)"
