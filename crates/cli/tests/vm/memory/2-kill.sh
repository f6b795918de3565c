# A controller that is killed leaves no limit behind.
box=/sys/fs/cgroup/killed
mkdir $box
echo 64M > $box/memory.max
echo +memory > $box/cgroup.subtree_control
mkdir $box/user
ullage memory daemon --box $box &
daemon=$!
sleep 2
sleep 30 &
sleeper=$!
echo $sleeper > $box/user/cgroup.procs
ullage memory mark $sleeper
echo "@@marked $(cat /proc/$sleeper/cgroup)"
kill -KILL $daemon
sleep 2
for moment in $(seq 40); do [ -e /run/ullage/memory ] || [ -e $box/ullage.contributed ] || break; sleep 0.5; done
echo "@@killed-left $(ls -d $box/ullage* 2> /dev/null) $(ls /run/ullage 2> /dev/null)"
echo "@@sleeper $(cat /proc/$sleeper/cgroup) $(grep State /proc/$sleeper/status)"
echo "@@killed-control $(cat $box/cgroup.subtree_control)"
