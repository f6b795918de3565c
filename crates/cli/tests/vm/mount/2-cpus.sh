# CPUs go and come below a mount that is in use; then a daemon that may use only one. Each request is bounded in time.
space=/tmp/space
patient="timeout 60"
work() {
    taskset $1 $patient sh -c "cd $space && mkdir $2 && for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo \$i > $2/\$i; done && cat $2/* | wc -l && rm -r $2"
}
online=/sys/devices/system/cpu/cpu1/online
echo "@@both $(work 1 a) $(work 2 b)"
($patient sh -c "while cp $space/data $space/busy && rm $space/busy; do [ ! -e /tmp/enough ] || exit 0; done") &
busy=$!
echo 0 > $online
echo "@@gone $(cat /sys/devices/system/cpu/online) $(work 1 c)"
echo 1 > $online
echo "@@back $(cat /sys/devices/system/cpu/online) $(work 1 d) $(work 2 e)"
touch /tmp/enough
wait $busy
echo "@@busy $?"
echo 0 > $online
echo "@@down $($patient ullage down $space && echo done)"
echo "@@one $(taskset 1 ullage up $space --state /tmp/state $UP 2>&1 && work 1 f)"
echo 1 > $online
echo "@@more $(work 1 g) $(work 2 h)"
echo "@@last $($patient ullage down $space && $patient ullage check $space > /dev/null && echo done)"
