# A server of NFS, for the last script: it makes who opens files wait for ten seconds after its start. What it asks user space for is told it beforehand.
server=/tmp/server
mkdir $server
mount -t tmpfs tmpfs $server
mkdir $server/pool
mount -t nfsd nfsd /proc/fs/nfsd
ifconfig lo up
echo '-3 +4' > /proc/fs/nfsd/versions
echo 10 > /proc/fs/nfsd/nfsv4leasetime
echo 10 > /proc/fs/nfsd/nfsv4gracetime
echo 'tcp 2049' > /proc/fs/nfsd/portlist
ends=2147483647
# Read and written, by any port, without delays, whatever lies where below it, and the first of all exports; root is root.
flags=$((0x2 + 0x10 + 0x400 + 0x2000))
echo "nfsd 127.0.0.1 $ends *" > /proc/net/rpc/auth.unix.ip/channel
echo "* $server $ends $flags 65534 65534 0" > /proc/net/rpc/nfsd.export/channel
echo "* 1 \\x00000000 $ends $server" > /proc/net/rpc/nfsd.fh/channel
echo 2 > /proc/fs/nfsd/threads
