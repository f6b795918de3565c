//! `caching-disk IMAGE POINT`: a disk with a cache of its own that loses what was not flushed, for `crash-campaign`.
//!
//! Serves IMAGE through FUSE as POINT/disk, for a loop device. Writes go to a copy that is read, and are remembered until
//! the next flush, which puts them into IMAGE. On standard input: `lie` (flushes do nothing from now on), `lose FILE SEED`
//! (FILE becomes what the disk holds if the power goes now: IMAGE, and of the writes since the last flush any sectors).
//! Each is answered with a line. Ends with its input.
//!
//! A process of its own: one that used a file system on its own disk could not end, since its last writes would wait for it.

#![deny(missing_docs)]

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, MountOption,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use ullage_posix_tests::random::Random;

const ROOT: INodeNo = INodeNo(1);
const DISK: INodeNo = INodeNo(2);
const NAME: &str = "disk";
/// What a disk writes whole or not at all.
const SECTOR: usize = 512;
const FOREVER: Duration = Duration::from_secs(1 << 30);

#[derive(Debug)]
struct Cache {
    current: File,
    stable: File,
    /// Since the last flush, in order.
    waiting: Vec<(u64, Vec<u8>)>,
    lying: bool,
}

impl Cache {
    /// Leaves in a new file what the disk holds when the power goes now; gives how many sectors were lost.
    fn lose(&self, into: &Path, random: &mut Random) -> usize {
        let image = File::create_new(into).expect("a copy can be made");
        rustix::fs::ioctl_ficlone(&image, &self.stable).expect("the file system below has reflinks");
        // From nothing at all to nearly everything.
        let kept = random.below(4);
        let mut lost = 0;
        for (offset, data) in &self.waiting {
            for (at, sector) in data.chunks(SECTOR).enumerate() {
                if random.below(4) < kept {
                    image.write_all_at(sector, offset + (at * SECTOR) as u64).expect("the copy is ours");
                } else {
                    lost += 1;
                }
            }
        }
        lost
    }
}

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(image), Some(point)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: caching-disk IMAGE POINT");
        std::process::exit(2);
    };
    let stable = File::options().read(true).write(true).open(&image).expect("the image is there");
    let current = image.with_extension("current");
    let current = File::options().read(true).write(true).create_new(true).open(current).expect("a file can be made");
    rustix::fs::ioctl_ficlone(&current, &stable).expect("the file system below has reflinks");
    let cache = Arc::new(Mutex::new(Cache { current, stable, waiting: Vec::new(), lying: false }));
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("caching-disk".to_owned()), MountOption::RW];
    let session = Session::new(Server(cache.clone()), &point, &config).expect("root can mount");
    std::thread::spawn(move || session.run());
    println!("ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["lie"] => {
                lock(&cache).lying = true;
                println!("lying");
            }
            ["lose", file, seed] => {
                let mut random = Random::new(seed.parse().unwrap_or_default());
                println!("{} sectors lost", lock(&cache).lose(Path::new(file), &mut random));
            }
            _ => println!("unknown: {line}"),
        }
    }
}

fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Server(Arc<Mutex<Cache>>);

impl Server {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let size = if ino == DISK { lock(&self.0).current.metadata().map_or(0, |meta| meta.len()) } else { 0 };
        let then = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: then,
            mtime: then,
            ctime: then,
            crtime: then,
            kind: if ino == DISK { FileType::RegularFile } else { FileType::Directory },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&FOREVER, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        assert!(ino == ROOT || ino == DISK, "the kernel asks for {ino:?}");
        reply.attr(&FOREVER, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buffer = vec![0; size as usize];
        match lock(&self.0).current.read_at(&mut buffer, offset) {
            Ok(length) => reply.data(&buffer[..length]),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut cache = lock(&self.0);
        match cache.current.write_all_at(data, offset) {
            Ok(()) => {
                cache.waiting.push((offset, data.to_vec()));
                reply.written(data.len() as u32);
            }
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut cache = lock(&self.0);
        if !cache.lying {
            for (offset, data) in std::mem::take(&mut cache.waiting) {
                cache.stable.write_all_at(&data, offset).expect("the image can be written");
            }
        }
        reply.ok();
    }
}
